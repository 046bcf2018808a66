-- Begins a new epoch, unless the projection needs a reset or is delivered by an outbox.
UPDATE holdfast_checkpoint
SET
    epoch = epoch + 1,
    unclean_ends = CASE
        WHEN CAST(:resumed AS boolean) THEN unclean_ends
        WHEN state <> 'running' OR NOT CAST(:died AS boolean) THEN 0
        WHEN unclean_position = position THEN unclean_ends + 1
        ELSE 1
    END,
    unclean_position = position,
    mark_position = CASE WHEN CAST(:died AS boolean) THEN mark_position END,
    mark_attempts = CASE WHEN CAST(:died AS boolean) THEN mark_attempts ELSE 0 END,
    state = 'running',
    asked_by = NULL,
    leader = :leader
WHERE
    id = :id AND NOT needs_reset
    AND NOT EXISTS (
        SELECT 1 FROM holdfast_outbox AS o
        WHERE o.projection = holdfast_checkpoint.projection AND o.feed = holdfast_checkpoint.feed
    )
RETURNING id, projection, feed, position, epoch, state, events_processed, revision, leader, paused_by,
    unclean_ends, mark_position, mark_attempts, asked_by
