-- How far the next events go, and the last of them.
SELECT s.events, s.through, e.id, e.type
FROM (
    SELECT count(*) AS events, max(n.position) AS through
    FROM (
        SELECT position FROM holdfast_event WHERE position > :after ORDER BY position LIMIT :limit
    ) AS n
) AS s
LEFT JOIN holdfast_event AS e ON e.position = s.through
