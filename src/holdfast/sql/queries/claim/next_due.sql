-- When the next lane is due, or its claim ends, with or without those whose heads have failed before; and
-- whether any lane is claimed.
SELECT
    (
        SELECT min(n.due_at) FROM (
            SELECT min(l.due_at) AS due_at FROM holdfast_lane AS l
            WHERE
                l.projection = :projection AND l.feed = :feed AND l.has_failed = false
                AND l.due_at IS NOT NULL
            UNION ALL
            SELECT min(l.due_at) FROM holdfast_lane AS l
            WHERE
                l.projection = :projection AND l.feed = :feed AND l.has_failed = true
                AND l.due_at IS NOT NULL AND CAST(:again AS boolean)
        ) AS n
    ),
    EXISTS (
        SELECT 1 FROM holdfast_lane AS c
        WHERE c.projection = :projection AND c.feed = :feed AND c.token IS NOT NULL
    )
