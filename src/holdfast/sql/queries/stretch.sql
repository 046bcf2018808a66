-- What is there between two positions, and the last of it.
SELECT s.events, s.through, e.id, e.type
FROM (
    SELECT count(*) AS events, max(position) AS through FROM holdfast_event
    WHERE position > :after AND position <= :through
) AS s
LEFT JOIN holdfast_event AS e ON e.position = s.through
