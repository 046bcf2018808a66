-- What idle runners wait for: events behind the head, or a change of their checkpoints.
SELECT h.position, c.id, c.epoch, c.revision
FROM (SELECT coalesce(max(position), 0) AS position FROM holdfast_event) AS h
LEFT JOIN holdfast_checkpoint AS c ON true
