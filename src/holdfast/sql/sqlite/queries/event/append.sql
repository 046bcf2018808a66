-- SQLite differs: with one writer, a single statement can check and insert.
INSERT INTO holdfast_event (stream, version, id, type, data, metadata, recorded_at)
SELECT
    :stream,
    (SELECT coalesce(max(version), 0) FROM holdfast_event WHERE stream = :stream) + new.key + 1,
    json_extract(new.value, '$.id'),
    json_extract(new.value, '$.type'),
    json_extract(new.value, '$.data'),
    json_extract(new.value, '$.metadata'),
    json_extract(new.value, '$.recorded_at')
FROM json_each(:events) AS new
WHERE
    (
        :expected IS NULL
        OR :expected = (SELECT coalesce(max(version), 0) FROM holdfast_event WHERE stream = :stream)
    )
    AND NOT (
        :check_ids
        AND EXISTS (
            SELECT 1 FROM holdfast_event
            WHERE id IN (SELECT json_extract(value, '$.id') FROM json_each(:events))
        )
    )
ORDER BY new.key
RETURNING position, version
