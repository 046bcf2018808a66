-- PostgreSQL only: columns whose sequence is behind their largest number. The sequence is read after the
-- snapshot was taken, so it is never behind where appends go on. Without the right to read it, nothing is known.
SELECT n.table_name, n.column_name, n.drawn, n.largest
FROM (
    SELECT
        t.table_name, t.column_name, t.largest,
        CASE
            WHEN has_sequence_privilege(s.name, 'USAGE, SELECT')
            THEN coalesce(pg_sequence_last_value(CAST(s.name AS regclass)), CAST(0 AS bigint))
        END AS drawn
    FROM (
        SELECT 'holdfast_event', 'position', max(position) FROM holdfast_event
        UNION ALL SELECT 'holdfast_checkpoint', 'id', CAST(max(id) AS bigint) FROM holdfast_checkpoint
        UNION ALL SELECT 'holdfast_queue', 'id', max(id) FROM holdfast_queue
        UNION ALL SELECT 'holdfast_audit', 'id', max(id) FROM holdfast_audit
    ) AS t (table_name, column_name, largest)
    CROSS JOIN LATERAL (SELECT pg_get_serial_sequence(t.table_name, t.column_name) AS name) AS s
) AS n
WHERE n.drawn < n.largest
