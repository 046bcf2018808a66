-- Creates the checkpoint if it is missing. A paused projection is paused on every feed.
INSERT INTO holdfast_checkpoint (projection, feed, paused_at, paused_by, paused_note)
SELECT
    :projection, :feed,
    (SELECT max(p.paused_at) FROM holdfast_checkpoint AS p WHERE p.projection = :projection),
    (SELECT max(p.paused_by) FROM holdfast_checkpoint AS p WHERE p.projection = :projection),
    (SELECT max(p.paused_note) FROM holdfast_checkpoint AS p WHERE p.projection = :projection)
WHERE true
ON CONFLICT (projection, feed) DO NOTHING
