-- SQLite differs: by the process's clock. Those who are at work keep their lanes.
UPDATE holdfast_lane SET due_at = :lease_until
WHERE token IN (SELECT value FROM json_each(:tokens))
