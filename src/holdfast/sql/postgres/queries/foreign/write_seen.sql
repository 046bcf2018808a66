-- PostgreSQL differs: its own JSON functions.
INSERT INTO holdfast_seen (event_id, projection, feed, position)
SELECT n.id, :projection, :feed, n.position
FROM json_to_recordset(CAST(:events AS json)) AS n (id uuid, position bigint)
ORDER BY n.id
ON CONFLICT (event_id, projection) DO NOTHING
