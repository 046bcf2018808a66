-- PostgreSQL differs: it locks rows. An operator's change waits for a claim, or the claim for the change.
-- What the claim reads afterwards includes the change.
SELECT 1 FROM holdfast_checkpoint WHERE projection = :projection AND feed = :feed FOR SHARE
