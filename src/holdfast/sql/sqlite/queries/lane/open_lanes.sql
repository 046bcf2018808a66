-- SQLite differs: the names come as one JSON document.
DELETE FROM holdfast_lane
WHERE
    projection = :projection AND feed = :feed AND lane IN (SELECT value FROM json_each(:lanes))
