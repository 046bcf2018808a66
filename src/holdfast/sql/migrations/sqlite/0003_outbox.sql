-- The projections that are delivered by the queue. Events up to the checkpoint are applied or in the
-- queue; those up to backfill_until come there by the backfill, later ones by the trigger below.
CREATE TABLE holdfast_outbox (
    projection     TEXT NOT NULL,
    feed           TEXT NOT NULL,
    mode           TEXT NOT NULL CHECK (mode IN ('live', 'shadow', 'off')),
    backfill_until INTEGER,
    PRIMARY KEY (projection, feed)
);

-- The event types that each of them handles; '*' stands for all.
CREATE TABLE holdfast_outbox_type (
    event_type TEXT NOT NULL,
    projection TEXT NOT NULL,
    feed       TEXT NOT NULL,
    PRIMARY KEY (event_type, projection, feed)
) WITHOUT ROWID;

-- Who has claimed the lane: whoever does not know it may not finish what he began.
ALTER TABLE holdfast_lane ADD COLUMN token TEXT;

-- What waits in its turn is not looked for by its status, and there may be much of it.
DROP INDEX holdfast_queue_status;
CREATE INDEX holdfast_queue_status ON holdfast_queue (status, projection, id)
    WHERE status IN ('failed', 'dead', 'skipped', 'resolved');

CREATE INDEX holdfast_lane_due ON holdfast_lane (projection, feed, due_at) WHERE due_at IS NOT NULL;
CREATE INDEX holdfast_lane_token ON holdfast_lane (token) WHERE token IS NOT NULL;

-- Puts new events into the queue, in the transaction of the append. Their payload stays in the
-- journal.
CREATE TRIGGER holdfast_enqueue AFTER INSERT ON holdfast_event
WHEN EXISTS (SELECT 1 FROM holdfast_outbox_type)
BEGIN
    INSERT INTO holdfast_queue (
        projection, feed, lane, position, stream, version, event_id, event_type, data, metadata,
        recorded_at, status, created_at, updated_at
    )
    SELECT
        t.projection, t.feed, NEW.stream, NEW.position, NEW.stream, NEW.version, NEW.id, NEW.type,
        '', '', NEW.recorded_at, 'pending', NEW.recorded_at, NEW.recorded_at
    FROM holdfast_outbox_type AS t
    WHERE t.event_type IN (NEW.type, '*');

    INSERT INTO holdfast_lane (projection, feed, lane, events, due_at)
    SELECT t.projection, t.feed, NEW.stream, 1, NEW.recorded_at
    FROM holdfast_outbox_type AS t
    WHERE t.event_type IN (NEW.type, '*')
    ON CONFLICT (projection, feed, lane) DO UPDATE SET events = events + 1;
END;

-- The processes that deliver them, and what they have done. Those that are gone stop being seen.
CREATE TABLE holdfast_relay (
    worker     TEXT PRIMARY KEY,
    projection TEXT NOT NULL,
    feed       TEXT NOT NULL,
    process    TEXT NOT NULL,
    started_at TEXT NOT NULL,
    seen_at    TEXT NOT NULL,
    applied    INTEGER NOT NULL DEFAULT 0,
    failed     INTEGER NOT NULL DEFAULT 0,
    looked     INTEGER NOT NULL DEFAULT 0,
    unreadable INTEGER NOT NULL DEFAULT 0
);

-- Items with their payload, wherever it is.
CREATE VIEW holdfast_item AS
SELECT
    q.id, q.projection, q.feed, q.lane, q.status, q.attempts, q.retries, q.next_attempt_at,
    q.first_failed_at, q.last_failed_at, q.error_type, q.error_message, q.error_stacktrace, q.history,
    q.resolved_by, q.resolved_at, q.note, q.created_at, q.updated_at,
    q.position, q.stream, q.version, q.event_id, q.event_type,
    CASE WHEN q.data = '' THEN e.data ELSE q.data END AS data,
    CASE WHEN q.data = '' THEN e.metadata ELSE q.metadata END AS metadata,
    q.recorded_at
FROM holdfast_queue AS q
LEFT JOIN holdfast_event AS e ON q.data = '' AND e.position = q.position;
