-- PostgreSQL differs: the ids come as one JSON document. What is applied no longer waits.
DELETE FROM holdfast_queue
WHERE id IN (SELECT CAST(json_array_elements_text(CAST(:ids AS json)) AS bigint))
RETURNING id
