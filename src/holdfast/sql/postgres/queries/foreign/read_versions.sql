-- PostgreSQL differs: its own JSON functions.
SELECT s.stream, s.version FROM holdfast_stream AS s
WHERE
    s.projection = :projection
    AND s.stream IN (SELECT n.value FROM json_array_elements_text(CAST(:streams AS json)) AS n (value))
