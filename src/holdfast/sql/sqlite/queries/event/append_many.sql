-- SQLite differs: one statement for all. The caller compares the versions with those it expected.
INSERT INTO holdfast_event (stream, version, id, type, data, metadata, recorded_at)
SELECT
    new.stream,
    (SELECT coalesce(max(version), 0) FROM holdfast_event WHERE stream = new.stream)
    + row_number() OVER (PARTITION BY new.stream ORDER BY new.key),
    json_extract(new.value, '$.id'),
    json_extract(new.value, '$.type'),
    json_extract(new.value, '$.data'),
    json_extract(new.value, '$.metadata'),
    json_extract(new.value, '$.recorded_at')
FROM (SELECT json_extract(value, '$.stream') AS stream, key, value FROM json_each(:events)) AS new
ORDER BY new.key
RETURNING position, version
