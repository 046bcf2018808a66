-- What is there between two positions, and the last of it. Its position is looked up by itself: in one
-- step with the count, SQLite would compare them all.
SELECT s.events, s.through, e.id, e.type
FROM (
    SELECT
        (SELECT count(*) FROM holdfast_event WHERE position > :after AND position <= :through) AS events,
        (SELECT max(position) FROM holdfast_event WHERE position > :after AND position <= :through) AS through
) AS s
LEFT JOIN holdfast_event AS e ON e.position = s.through
