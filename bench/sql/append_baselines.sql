-- What holdfast_append is measured against: the same insert into the same table, without locks for
-- readers or for the stream (append_bare), and with one lock for all writers (append_exclusive).
-- Whatever changes in holdfast_append but its locks must change here too.
CREATE SCHEMA bench;

CREATE TABLE bench.event (LIKE holdfast_event INCLUDING ALL);

CREATE FUNCTION bench.append_bare(
    p_stream text, p_expected bigint, p_check_ids boolean, p_events json
) RETURNS TABLE (event_position bigint, event_version bigint) LANGUAGE plpgsql AS $$
DECLARE
    v_current bigint;
BEGIN
    SELECT coalesce(max(e.version), 0) INTO v_current FROM bench.event e WHERE e.stream = p_stream;
    IF v_current <> p_expected THEN
        RETURN;
    END IF;
    IF p_check_ids AND EXISTS (
        SELECT FROM bench.event e
        WHERE e.id IN (SELECT (n.value ->> 'id')::uuid FROM json_array_elements(p_events) AS n)
    ) THEN
        RETURN;
    END IF;

    RETURN QUERY
    INSERT INTO bench.event AS e (stream, version, id, type, data, metadata, recorded_at)
    SELECT p_stream, v_current + n.ordinal, n.id, n.type, n.data::json, n.metadata::json, n.recorded_at
    FROM ROWS FROM (
        json_to_recordset(p_events)
            AS (id uuid, type text, data text, metadata text, recorded_at timestamptz)
    ) WITH ORDINALITY AS n (id, type, data, metadata, recorded_at, ordinal)
    ORDER BY n.ordinal
    RETURNING e.position, e.version;
END
$$;

CREATE FUNCTION bench.append_exclusive(
    p_stream text, p_expected bigint, p_check_ids boolean, p_events json
) RETURNS TABLE (event_position bigint, event_version bigint) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(77);
    RETURN QUERY SELECT * FROM bench.append_bare(p_stream, p_expected, p_check_ids, p_events);
END
$$;
