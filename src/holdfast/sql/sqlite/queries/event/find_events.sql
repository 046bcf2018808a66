-- SQLite differs: its own JSON functions.
SELECT position, version, stream, id
FROM holdfast_event
WHERE id IN (SELECT json_extract(value, '$.id') FROM json_each(:events))
