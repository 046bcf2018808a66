-- PostgreSQL differs: a function takes the locks. An append that is refused is left out.
SELECT a.event_position, a.event_version
FROM (
    SELECT
        CAST(n.value ->> CAST('append' AS text) AS integer) AS append,
        min(n.value ->> CAST('stream' AS text)) AS stream,
        min(CAST(n.value ->> CAST('expected' AS text) AS bigint)) AS expected,
        pg_catalog.json_agg(n.value ORDER BY n.ordinal) AS events
    FROM json_array_elements(CAST(:events AS json)) WITH ORDINALITY AS n (value, ordinal)
    GROUP BY 1
    ORDER BY 1
) AS new
CROSS JOIN LATERAL holdfast_append(new.stream, new.expected, TRUE, new.events) AS a
ORDER BY new.append, a.event_version
