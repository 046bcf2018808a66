-- The range of the next events: their number, and the last one.
SELECT s.events, s.through, e.id, e.type
FROM (
    SELECT count(*) AS events, max(n.position) AS through
    FROM (
        SELECT position FROM holdfast_event WHERE position > :after ORDER BY position LIMIT :limit
    ) AS n
) AS s
LEFT JOIN holdfast_event AS e ON e.position = s.through
