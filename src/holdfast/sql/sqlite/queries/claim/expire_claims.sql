-- SQLite differs: its own JSON functions, and the process's clock. The claims of these lanes end now;
-- their heads' workers are lost, and the next claim says so.
UPDATE holdfast_lane SET due_at = :now
WHERE
    projection = :projection AND feed = :feed AND token = :token
    AND lane IN (SELECT value FROM json_each(:lanes))
