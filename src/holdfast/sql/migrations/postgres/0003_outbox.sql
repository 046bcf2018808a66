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

CREATE INDEX holdfast_lane_due ON holdfast_lane (projection, feed, due_at) WHERE due_at IS NOT NULL;
CREATE INDEX holdfast_lane_token ON holdfast_lane (token) WHERE token IS NOT NULL;

ALTER TABLE holdfast_lane SET (
    fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000
);
ALTER TABLE holdfast_queue SET (
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000
);

-- Puts new events into the queue, in the transaction of the append. Their payload stays in the
-- journal.
CREATE FUNCTION holdfast_enqueue() RETURNS trigger LANGUAGE plpgsql
SET enable_seqscan = off
AS $$
DECLARE
    v_version bigint;
BEGIN
    SELECT last_value INTO v_version FROM holdfast_outbox_version_seen;
    IF v_version = 0 THEN
        RETURN NULL;
    END IF;
    -- In its own statement, which sees what was committed before the version was raised; unless the
    -- transaction looks at the past. Then it would leave the queue without these events.
    IF v_version > (SELECT o.version FROM holdfast_outbox_version o) THEN
        RAISE EXCEPTION USING
            ERRCODE = 'serialization_failure',
            MESSAGE = 'an outbox projection was registered after this transaction began; try again';
    END IF;
    WITH added AS (
        INSERT INTO holdfast_queue (
            projection, feed, lane, position, stream, version, event_id, event_type, data, metadata,
            recorded_at, status, created_at, updated_at
        )
        SELECT
            t.projection, t.feed, e.stream, e.position, e.stream, e.version, e.id, e.type, '', '',
            e.recorded_at, 'pending', clock_timestamp(), clock_timestamp()
        FROM new_events e
        JOIN holdfast_outbox_type t ON t.event_type IN (e.type, '*')
        ORDER BY e.position
        RETURNING projection, feed, lane
    )
    INSERT INTO holdfast_lane AS l (projection, feed, lane, events, due_at)
    SELECT a.projection, a.feed, a.lane, count(*), clock_timestamp()
    FROM added a
    GROUP BY a.projection, a.feed, a.lane
    ORDER BY a.projection, a.feed, a.lane
    ON CONFLICT (projection, feed, lane) DO UPDATE SET events = l.events + excluded.events;
    RETURN NULL;
END
$$;

CREATE TRIGGER holdfast_enqueue AFTER INSERT ON holdfast_event
REFERENCING NEW TABLE AS new_events
FOR EACH STATEMENT EXECUTE FUNCTION holdfast_enqueue();

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
