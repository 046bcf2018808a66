-- SQLite differs: a writing transaction is alone. The lanes of a claim that are still ours.
SELECT lane FROM holdfast_lane
WHERE
    projection = :projection AND feed = :feed AND token = :token
    AND lane IN (SELECT value FROM json_each(:lanes))
