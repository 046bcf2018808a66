-- PostgreSQL differs: it locks rows. Nobody else changes these lanes before the transaction ends. A lane
-- without a row gets an empty one, since only a row can be locked.
INSERT INTO holdfast_lane AS l (projection, feed, lane, events)
SELECT :projection, :feed, n.lane, 0
FROM json_array_elements_text(CAST(:lanes AS json)) AS n (lane)
ORDER BY n.lane COLLATE "C"
ON CONFLICT (projection, feed, lane) DO UPDATE SET events = l.events
