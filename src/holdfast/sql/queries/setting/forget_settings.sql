-- A projection that is gone from the code has no settings.
DELETE FROM holdfast_setting WHERE projection = :projection
