-- What all idle runners wait for: the journal's end, and whether their checkpoints are as they left them.
SELECT (SELECT coalesce(max(position), 0) FROM holdfast_event), id, epoch, revision
FROM holdfast_checkpoint
