-- The range between two positions. The last position is a query of its own: together with the count, SQLite
-- would compare all of them.
SELECT s.events, s.through, e.id, e.type
FROM (
    SELECT
        (SELECT count(*) FROM holdfast_event WHERE position > :after AND position <= :through) AS events,
        (SELECT max(position) FROM holdfast_event WHERE position > :after AND position <= :through) AS through
) AS s
LEFT JOIN holdfast_event AS e ON e.position = s.through
