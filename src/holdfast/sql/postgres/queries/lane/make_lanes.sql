-- PostgreSQL differs: the lanes come as one JSON document. What is not there can't be locked: each of them
-- is there from now on, be it empty.
INSERT INTO holdfast_lane (projection, feed, lane, events)
SELECT :projection, :feed, n.lane, 0
FROM json_array_elements_text(CAST(:lanes AS json)) AS n (lane)
ORDER BY n.lane
ON CONFLICT (projection, feed, lane) DO NOTHING
