-- SQLite differs: its own JSON functions. Deletes the rows of claimed lanes in which nothing is left.
DELETE FROM holdfast_lane
WHERE
    projection = :projection AND feed = :feed AND token = :token
    AND events <= (
        SELECT json_extract(n.value, '$.gone') FROM json_each(:lanes) AS n
        WHERE json_extract(n.value, '$.lane') = holdfast_lane.lane
    )
RETURNING lane
