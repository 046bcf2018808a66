-- A projection's checkpoints, for those who only want to know how far it is.
SELECT id, epoch, position, state, feed FROM holdfast_checkpoint WHERE projection = :projection
