-- A projection's checkpoints: epoch, position and state.
SELECT id, epoch, position, state, feed, needs_reset FROM holdfast_checkpoint WHERE projection = :projection
