-- SQLite differs: its own JSON functions.
SELECT stream, version FROM holdfast_stream
WHERE projection = :projection AND stream IN (SELECT value FROM json_each(:streams))
