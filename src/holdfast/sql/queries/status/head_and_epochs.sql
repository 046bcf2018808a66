-- What all idle runners wait for: the journal's end, and whether their checkpoints are as they left them.
SELECT h.position, c.id, c.epoch, c.revision
FROM (SELECT coalesce(max(position), 0) AS position FROM holdfast_event) AS h
LEFT JOIN holdfast_checkpoint AS c ON true
