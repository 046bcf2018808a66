-- SQLite differs: the ids come as one JSON document. What is applied no longer waits.
DELETE FROM holdfast_queue WHERE id IN (SELECT value FROM json_each(:ids))
RETURNING id
