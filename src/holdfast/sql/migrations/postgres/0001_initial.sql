CREATE TABLE holdfast_event (
    position    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    stream      text COLLATE "C" NOT NULL,
    version     bigint NOT NULL,
    id          uuid NOT NULL,
    type        text COLLATE "C" NOT NULL,
    -- json, not jsonb: what was appended comes back to the letter.
    data        json NOT NULL,
    metadata    json NOT NULL,
    recorded_at timestamptz NOT NULL,
    CONSTRAINT holdfast_event_stream_version UNIQUE (stream, version),
    CONSTRAINT holdfast_event_id UNIQUE (id)
);

CREATE TABLE holdfast_checkpoint (
    id                integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    projection        text NOT NULL,
    feed              text NOT NULL,
    position          bigint NOT NULL DEFAULT 0,
    epoch             bigint NOT NULL DEFAULT 0,
    state             text NOT NULL DEFAULT 'stopped' CHECK (state IN ('running', 'stopped', 'faulted')),
    leader            text,
    leader_pid        integer,
    leader_since      timestamptz,
    last_event_id     uuid,
    last_event_type   text,
    last_processed_at timestamptz,
    events_processed  bigint NOT NULL DEFAULT 0,
    events_per_second double precision NOT NULL DEFAULT 0,
    error_type        text,
    error_message     text,
    error_stacktrace  text,
    error_at          timestamptz,
    error_position    bigint,
    error_event_id    uuid,
    error_event_type  text,
    needs_reset       boolean NOT NULL DEFAULT false,
    UNIQUE (projection, feed)
) WITH (fillfactor = 50);

-- The tables that projections own, and the definition their rows were written under.
CREATE TABLE holdfast_table (
    name       text PRIMARY KEY,
    projection text NOT NULL,
    definition text NOT NULL
);

-- Appends events and returns their positions and versions, or nothing at all where the stream is
-- not at the expected version or one of the ids is known. It never raises for these, so that a
-- caller's transaction stays usable.
CREATE FUNCTION holdfast_append(
    p_stream text, p_expected bigint, p_check_ids boolean, p_events json
) RETURNS TABLE (event_position bigint, event_version bigint) LANGUAGE plpgsql
-- A plan made while the journal was small must not scan it when it has grown.
SET enable_seqscan = off
AS $$
DECLARE
    v_current bigint;
BEGIN
    -- Appends to one stream take turns; what follows sees the ones before.
    PERFORM pg_advisory_xact_lock(x'48465354'::int, hashtext(p_stream));

    SELECT coalesce(max(e.version), 0) INTO v_current FROM holdfast_event e WHERE e.stream = p_stream;
    IF v_current <> p_expected THEN
        RETURN;
    END IF;
    IF p_check_ids AND EXISTS (
        SELECT FROM holdfast_event e
        WHERE e.id IN (SELECT (n.value ->> 'id')::uuid FROM json_array_elements(p_events) AS n)
    ) THEN
        RETURN;
    END IF;

    -- Tells readers that positions above this bound may still appear: see settled.py. Once per
    -- transaction is enough, and keeps a transaction of many appends within the lock table.
    IF coalesce(current_setting('holdfast.appending', true), '') = '' THEN
        PERFORM
            pg_advisory_xact_lock_shared(
                (('holdfast_event'::regclass::oid::bigint & 32767) << 48)
                | CASE WHEN s.is_called THEN s.last_value ELSE 0 END
            ),
            set_config('holdfast.appending', 'yes', true)
        FROM holdfast_event_position_seq s;
    END IF;

    RETURN QUERY
    INSERT INTO holdfast_event AS e (stream, version, id, type, data, metadata, recorded_at)
    SELECT p_stream, v_current + n.ordinal, n.id, n.type, n.data::json, n.metadata::json, n.recorded_at
    FROM ROWS FROM (
        json_to_recordset(p_events)
            AS (id uuid, type text, data text, metadata text, recorded_at timestamptz)
    ) WITH ORDINALITY AS n (id, type, data, metadata, recorded_at, ordinal)
    ORDER BY n.ordinal
    RETURNING e.position, e.version;
END
$$;
