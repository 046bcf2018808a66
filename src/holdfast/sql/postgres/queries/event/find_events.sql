-- PostgreSQL differs: its own JSON functions.
SELECT e.position, e.version, e.stream, CAST(e.id AS text)
FROM holdfast_event AS e
WHERE e.id IN (
    SELECT CAST(n.value ->> CAST('id' AS text) AS uuid) FROM json_array_elements(CAST(:events AS json)) AS n
)
