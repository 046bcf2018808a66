-- PostgreSQL differs: its own JSON functions. Deletes items that were applied.
DELETE FROM holdfast_queue
WHERE id IN (SELECT CAST(json_array_elements_text(CAST(:ids AS json)) AS bigint))
RETURNING id
