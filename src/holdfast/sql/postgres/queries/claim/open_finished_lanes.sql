-- PostgreSQL differs: its own JSON functions. Deletes the rows of claimed lanes in which nothing is left.
DELETE FROM holdfast_lane AS l
USING json_to_recordset(CAST(:lanes AS json)) AS n (lane text, gone bigint)
WHERE
    l.projection = :projection AND l.feed = :feed AND l.lane = n.lane AND l.token = :token
    AND l.events <= n.gone
RETURNING l.lane
