-- When the next lane is due, or its claim ends; and whether any lane is claimed.
SELECT
    l.due_at,
    EXISTS (
        SELECT 1 FROM holdfast_lane AS c
        WHERE c.projection = :projection AND c.feed = :feed AND c.token IS NOT NULL
    )
FROM holdfast_lane AS l
WHERE l.projection = :projection AND l.feed = :feed AND l.due_at IS NOT NULL
ORDER BY l.due_at LIMIT 1
