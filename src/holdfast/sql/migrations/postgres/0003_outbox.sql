-- The projections that are delivered by the queue. Events up to the checkpoint are applied or in the
-- queue; those up to backfill_until come there by the backfill, later ones by the trigger below.
CREATE TABLE holdfast_outbox (
    projection     text NOT NULL,
    feed           text NOT NULL,
    mode           text NOT NULL CHECK (mode IN ('live', 'shadow', 'off')),
    backfill_until bigint,
    PRIMARY KEY (projection, feed)
);

-- The event types that each of them handles; '*' stands for all.
CREATE TABLE holdfast_outbox_type (
    event_type text COLLATE "C" NOT NULL,
    projection text NOT NULL,
    feed       text NOT NULL,
    PRIMARY KEY (event_type, projection, feed)
);

-- Counts registrations: the table as everybody's snapshot shows it, and the sequence, which depends on
-- no snapshot, up to the last one that is committed.
CREATE TABLE holdfast_outbox_version (version bigint NOT NULL);
INSERT INTO holdfast_outbox_version VALUES (0);
CREATE SEQUENCE holdfast_outbox_version_seen MINVALUE 0 START 0;

ALTER TABLE holdfast_lane
    -- Who has claimed the lane: whoever does not know it may not finish what he began.
    ADD COLUMN token text;

-- What waits in its turn is not looked for by its status, and there may be much of it.
DROP INDEX holdfast_queue_status;
CREATE INDEX holdfast_queue_status ON holdfast_queue (status, projection, id)
    WHERE status IN ('failed', 'dead', 'skipped', 'resolved');

CREATE INDEX holdfast_lane_due ON holdfast_lane (projection, feed, due_at) WHERE due_at IS NOT NULL;
CREATE INDEX holdfast_lane_token ON holdfast_lane (token) WHERE token IS NOT NULL;

ALTER TABLE holdfast_lane SET (
    fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000
);
ALTER TABLE holdfast_queue SET (
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000
);

-- As before; where an outbox projection is registered, the events go into the queue as well, in the
-- same statement. Their payload stays in the journal.
--
-- Appends events and returns their positions and versions, or nothing at all where the stream is
-- not at the expected version or one of the ids is known. It never raises for these, so that a
-- caller's transaction stays usable.
CREATE OR REPLACE FUNCTION holdfast_append(
    p_stream text, p_expected bigint, p_check_ids boolean, p_events json
) RETURNS TABLE (event_position bigint, event_version bigint) LANGUAGE plpgsql
-- A plan made while the journal was small must not scan it when it has grown.
SET enable_seqscan = off
AS $$
DECLARE
    v_current bigint;
    v_version bigint;
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

    SELECT last_value INTO v_version FROM holdfast_outbox_version_seen;
    IF v_version = 0 THEN
        RETURN QUERY
        INSERT INTO holdfast_event AS e (stream, version, id, type, data, metadata, recorded_at)
        SELECT p_stream, v_current + n.ordinal, n.id, n.type, n.data::json, n.metadata::json, n.recorded_at
        FROM ROWS FROM (
            json_to_recordset(p_events)
                AS (id uuid, type text, data text, metadata text, recorded_at timestamptz)
        ) WITH ORDINALITY AS n (id, type, data, metadata, recorded_at, ordinal)
        ORDER BY n.ordinal
        RETURNING e.position, e.version;
        RETURN;
    END IF;

    -- In its own statement, which sees what was committed before the sequence was raised; unless the
    -- transaction looks at the past. Then it would leave the queue without these events.
    IF v_version > (SELECT o.version FROM holdfast_outbox_version o) THEN
        RAISE EXCEPTION USING
            ERRCODE = 'serialization_failure',
            MESSAGE = 'an outbox projection was registered after this transaction began; try again';
    END IF;
    RETURN QUERY
    WITH added AS (
        INSERT INTO holdfast_event AS e (stream, version, id, type, data, metadata, recorded_at)
        SELECT p_stream, v_current + n.ordinal, n.id, n.type, n.data::json, n.metadata::json, n.recorded_at
        FROM ROWS FROM (
            json_to_recordset(p_events)
                AS (id uuid, type text, data text, metadata text, recorded_at timestamptz)
        ) WITH ORDINALITY AS n (id, type, data, metadata, recorded_at, ordinal)
        ORDER BY n.ordinal
        RETURNING e.position, e.version, e.id, e.type, e.recorded_at
    ), queued AS (
        INSERT INTO holdfast_queue AS q (
            projection, feed, lane, position, stream, version, event_id, event_type, data, metadata,
            recorded_at, status, created_at, updated_at
        )
        SELECT
            t.projection, t.feed, p_stream, a.position, p_stream, a.version, a.id, a.type, '', '',
            a.recorded_at, 'pending', clock_timestamp(), clock_timestamp()
        FROM added a
        JOIN holdfast_outbox_type t ON t.event_type IN (a.type, '*')
        RETURNING q.projection, q.feed
    ), lanes AS (
        INSERT INTO holdfast_lane AS l (projection, feed, lane, events, due_at)
        SELECT q.projection, q.feed, p_stream, count(*), clock_timestamp()
        FROM queued q
        GROUP BY q.projection, q.feed
        ORDER BY q.projection, q.feed
        ON CONFLICT (projection, feed, lane) DO UPDATE SET events = l.events + excluded.events
    )
    SELECT a.position, a.version FROM added a;
END
$$;

-- The processes that deliver them, and what they have done. Those that are gone stop being seen.
CREATE TABLE holdfast_relay (
    worker     text PRIMARY KEY,
    projection text NOT NULL,
    feed       text NOT NULL,
    process    text NOT NULL,
    started_at timestamptz NOT NULL,
    seen_at    timestamptz NOT NULL,
    applied    bigint NOT NULL DEFAULT 0,
    failed     bigint NOT NULL DEFAULT 0,
    looked     bigint NOT NULL DEFAULT 0,
    unreadable bigint NOT NULL DEFAULT 0
);

-- Items with their payload, wherever it is.
CREATE VIEW holdfast_item AS
SELECT
    q.id, q.projection, q.feed, q.lane, q.status, q.attempts, q.retries, q.next_attempt_at,
    q.first_failed_at, q.last_failed_at, q.error_type, q.error_message, q.error_stacktrace, q.history,
    q.resolved_by, q.resolved_at, q.note, q.created_at, q.updated_at,
    q.position, q.stream, q.version, q.event_id, q.event_type,
    CASE WHEN q.data = '' THEN CAST(e.data AS text) ELSE q.data END AS data,
    CASE WHEN q.data = '' THEN CAST(e.metadata AS text) ELSE q.metadata END AS metadata,
    q.recorded_at
FROM holdfast_queue AS q
LEFT JOIN holdfast_event AS e ON q.data = '' AND e.position = q.position;
