-- PostgreSQL differs: locks, so that a person's change waits for a claim and sees it, or the claim waits
-- for the change; what it reads afterwards, in a statement of its own, is what the change has left.
SELECT 1 FROM holdfast_checkpoint WHERE projection = :projection AND feed = :feed FOR SHARE
