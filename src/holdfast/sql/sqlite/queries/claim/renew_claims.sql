-- SQLite differs: the process's clock. Prolongs claims.
UPDATE holdfast_lane SET due_at = :lease_until
WHERE token IN (SELECT value FROM json_each(:tokens))
