-- What waits, or was skipped or resolved, belongs to the rows that are cleared.
DELETE FROM holdfast_queue WHERE projection = :projection
