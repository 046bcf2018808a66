-- A projection's checkpoints: epoch, position and state; and whether the journal has the last event that
-- one of the journal has come to: not, if it was another journal.
SELECT
    c.id, c.epoch, c.position, c.state, c.feed, c.needs_reset,
    c.last_event_id IS NULL
    OR NOT (c.feed = 'journal' OR c.feed LIKE 'journal[%/%]')
    OR EXISTS (SELECT 1 FROM holdfast_event AS e WHERE e.id = c.last_event_id)
FROM holdfast_checkpoint AS c
WHERE c.projection = :projection
