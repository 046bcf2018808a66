-- Whether a projection may only run after a reset: while one is half done.
UPDATE holdfast_checkpoint SET needs_reset = :needs_reset WHERE projection = :projection
