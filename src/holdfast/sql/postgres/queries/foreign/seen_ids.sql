-- PostgreSQL differs: its own JSON functions.
SELECT CAST(s.event_id AS text) FROM holdfast_seen AS s
WHERE
    s.projection = :projection
    AND s.event_id IN (
        SELECT CAST(n.value AS uuid) FROM json_array_elements_text(CAST(:ids AS json)) AS n (value)
    )
