-- It has to be said again what it handles.
DELETE FROM holdfast_outbox_type WHERE projection = :projection AND feed = :feed
