-- From now on, the code's value counts again.
DELETE FROM holdfast_setting WHERE projection = :projection AND name = :name
RETURNING value
