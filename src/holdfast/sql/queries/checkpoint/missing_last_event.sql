-- The last event of a checkpoint, if the journal does not have it.
SELECT CAST(c.last_event_id AS text) FROM holdfast_checkpoint AS c
WHERE
    c.id = :id AND c.last_event_id IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM holdfast_event AS e WHERE e.id = c.last_event_id)
