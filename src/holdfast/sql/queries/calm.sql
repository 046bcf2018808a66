-- The process lives, and there is nothing to do: no event here has killed one.
UPDATE holdfast_checkpoint SET unclean_ends = 0 WHERE id = :id AND epoch = :epoch
