-- SQLite differs: its own JSON functions, and the process's clock. Releases claimed lanes in which events
-- are left, and says when their heads may be tried.
UPDATE holdfast_lane AS l
SET
    token = NULL,
    events = l.events - n.gone,
    (due_at, has_failed) = (
        SELECT
            CASE q.status
                WHEN 'dead' THEN NULL
                WHEN 'failed' THEN coalesce(q.next_attempt_at, :now)
                ELSE :now
            END,
            q.first_failed_at IS NOT NULL
        FROM holdfast_queue AS q
        WHERE
            q.projection = l.projection AND q.feed = l.feed AND q.lane = l.lane
            AND q.status IN ('pending', 'processing', 'failed', 'dead')
        ORDER BY q.position LIMIT 1
    )
FROM (
    SELECT json_extract(value, '$.lane') AS lane, json_extract(value, '$.gone') AS gone
    FROM json_each(:lanes)
) AS n
WHERE l.projection = :projection AND l.feed = :feed AND l.lane = n.lane AND l.token = :token
