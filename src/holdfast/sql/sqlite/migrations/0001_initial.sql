CREATE TABLE holdfast_event (
    -- AUTOINCREMENT: a position is never used again, whatever is deleted by hand.
    position    INTEGER PRIMARY KEY AUTOINCREMENT,
    stream      TEXT NOT NULL,
    version     INTEGER NOT NULL,
    id          TEXT NOT NULL UNIQUE,
    type        TEXT NOT NULL,
    data        TEXT NOT NULL,
    metadata    TEXT NOT NULL,
    recorded_at TEXT NOT NULL,
    UNIQUE (stream, version)
);

CREATE TABLE holdfast_checkpoint (
    -- AUTOINCREMENT: an id that fences its runner is never used again.
    id                INTEGER PRIMARY KEY AUTOINCREMENT,
    projection        TEXT NOT NULL,
    feed              TEXT NOT NULL,
    position          INTEGER NOT NULL DEFAULT 0,
    epoch             INTEGER NOT NULL DEFAULT 0,
    state             TEXT NOT NULL DEFAULT 'stopped' CHECK (state IN ('running', 'stopped', 'faulted')),
    leader            TEXT,
    leader_pid        INTEGER,
    leader_since      TEXT,
    last_event_id     TEXT,
    last_event_type   TEXT,
    last_processed_at TEXT,
    events_processed  INTEGER NOT NULL DEFAULT 0,
    events_per_second REAL NOT NULL DEFAULT 0,
    error_type        TEXT,
    error_message     TEXT,
    error_stacktrace  TEXT,
    error_at          TEXT,
    error_position    INTEGER,
    error_event_id    TEXT,
    error_event_type  TEXT,
    -- When the event failed first, how often it has, and how often it may; NULL is no limit.
    error_since       TEXT,
    error_attempts    INTEGER NOT NULL DEFAULT 0,
    error_limit       INTEGER,
    needs_reset       INTEGER NOT NULL DEFAULT 0,
    -- Raised by every change of an operator; a runner that does not know of it can't commit.
    revision          INTEGER NOT NULL DEFAULT 0,
    paused_at         TEXT,
    paused_by         TEXT,
    paused_note       TEXT,
    waiting_until     TEXT,
    waiting_for       TEXT,
    -- How often in a row a process has died at this position, and the event that was tried alone.
    unclean_ends      INTEGER NOT NULL DEFAULT 0,
    unclean_position  INTEGER,
    mark_position     INTEGER,
    mark_attempts     INTEGER NOT NULL DEFAULT 0,
    -- What tells the feed from another one of its name, where others write it.
    origin            TEXT,
    -- The process to which the leader should leave it.
    asked_by          TEXT,
    UNIQUE (projection, feed)
);

-- How many shards each projection has. While that is changed: how many it will have, and the position up
-- to which the present ones go before. start_position: where it has begun, if the code says that.
CREATE TABLE holdfast_layout (
    projection     TEXT PRIMARY KEY,
    shards         INTEGER NOT NULL,
    next_shards    INTEGER,
    barrier        INTEGER,
    start_position INTEGER
);

-- Settings that operators have set in place of the code's; value is JSON.
CREATE TABLE holdfast_setting (
    projection TEXT NOT NULL,
    name       TEXT NOT NULL,
    value      TEXT NOT NULL,
    set_at     TEXT NOT NULL,
    set_by     TEXT NOT NULL,
    note       TEXT,
    PRIMARY KEY (projection, name)
);

-- The tables that projections own, and the definition their rows were written under.
CREATE TABLE holdfast_table (
    name       TEXT PRIMARY KEY,
    projection TEXT NOT NULL,
    definition TEXT NOT NULL
);

-- What waits to be tried, or to be looked at by an operator. Where data is empty, payload and metadata
-- are in the journal.
CREATE TABLE holdfast_queue (
    id               INTEGER PRIMARY KEY AUTOINCREMENT,
    projection       TEXT NOT NULL,
    feed             TEXT NOT NULL,
    lane             TEXT NOT NULL,
    position         INTEGER NOT NULL,
    stream           TEXT NOT NULL,
    version          INTEGER NOT NULL,
    event_id         TEXT NOT NULL,
    event_type       TEXT NOT NULL,
    data             TEXT NOT NULL,
    metadata         TEXT NOT NULL,
    recorded_at      TEXT NOT NULL,
    status           TEXT NOT NULL CHECK (
        status IN ('pending', 'processing', 'failed', 'dead', 'skipped', 'resolved', 'done')
    ),
    attempts         INTEGER NOT NULL DEFAULT 0,
    retries          INTEGER NOT NULL DEFAULT 0,
    next_attempt_at  TEXT,
    first_failed_at  TEXT,
    last_failed_at   TEXT,
    error_type       TEXT,
    error_message    TEXT,
    error_stacktrace TEXT,
    history          TEXT NOT NULL DEFAULT '[]',
    claimed_by       TEXT,
    claimed_until    TEXT,
    resolved_by      TEXT,
    resolved_at      TEXT,
    note             TEXT,
    -- What the event was read from, where others have written it.
    kept             TEXT,
    created_at       TEXT NOT NULL,
    updated_at       TEXT NOT NULL,
    CONSTRAINT holdfast_queue_event UNIQUE (position, projection, feed)
);

CREATE INDEX holdfast_queue_lane ON holdfast_queue (projection, feed, lane, position)
    WHERE status IN ('pending', 'processing', 'failed', 'dead');
-- What waits in its turn is not looked for by its status, and there may be much of it.
CREATE INDEX holdfast_queue_status ON holdfast_queue (status, projection, id)
    WHERE status IN ('failed', 'dead', 'skipped', 'resolved', 'done');

-- What is kept for a time after it was done.
CREATE INDEX holdfast_queue_done ON holdfast_queue (projection, feed, updated_at) WHERE status = 'done';

-- Where others write the feed: what waits in a lane in the order of versions, what of it could not be read,
-- what an operator has resolved, and events by their ids. Appends write none of these.
CREATE INDEX holdfast_queue_version ON holdfast_queue (projection, feed, lane, version, position)
    WHERE
        feed <> 'journal' AND feed <> 'messages'
        AND status IN ('pending', 'processing', 'failed', 'dead');
CREATE INDEX holdfast_queue_unread ON holdfast_queue (projection, feed, lane, version, position)
    WHERE event_type = 'holdfast.undecodable';
CREATE INDEX holdfast_queue_resolved ON holdfast_queue (projection, feed, stream, version)
    WHERE status = 'resolved';
CREATE INDEX holdfast_queue_event_id ON holdfast_queue (projection, event_id)
    WHERE feed <> 'journal' AND feed <> 'messages';

-- A row for each lane that has something outstanding. due_at: when its head, the smallest position,
-- may be tried; NULL while the head waits for an operator.
CREATE TABLE holdfast_lane (
    projection TEXT NOT NULL,
    feed       TEXT NOT NULL,
    lane       TEXT NOT NULL,
    events     INTEGER NOT NULL,
    due_at     TEXT,
    -- The token of the claim: without it, a worker may not finish what it began.
    token      TEXT,
    -- Whether its head has failed before: what is tried again gets a part of the workers.
    has_failed INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (lane, projection, feed)
);

CREATE INDEX holdfast_lane_due ON holdfast_lane (projection, feed, has_failed, due_at)
    WHERE due_at IS NOT NULL;
CREATE INDEX holdfast_lane_token ON holdfast_lane (token) WHERE token IS NOT NULL;

-- The last version of each stream that a projection has passed, where others write the feed and number its
-- streams. previous: the version before, which nobody may have changed when this one is written.
CREATE TABLE holdfast_stream (
    projection TEXT NOT NULL,
    stream     TEXT NOT NULL,
    version    INTEGER NOT NULL,
    previous   INTEGER NOT NULL,
    feed       TEXT NOT NULL,
    -- When the last event was recorded, where streams may begin again.
    last_at    TEXT,
    PRIMARY KEY (stream, projection)
) WITHOUT ROWID;

-- The last events that a projection has passed, where nobody numbers the streams.
CREATE TABLE holdfast_seen (
    event_id   TEXT NOT NULL,
    projection TEXT NOT NULL,
    feed       TEXT NOT NULL,
    position   INTEGER NOT NULL,
    PRIMARY KEY (event_id, projection)
);
CREATE INDEX holdfast_seen_position ON holdfast_seen (projection, feed, position);

CREATE TABLE holdfast_audit (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    at         TEXT NOT NULL,
    actor      TEXT NOT NULL,
    action     TEXT NOT NULL,
    projection TEXT,
    subject    TEXT NOT NULL,
    note       TEXT
);

-- The projections that are delivered by the queue. Events up to the checkpoint are applied or in the
-- queue; those up to backfill_until come there by the backfill, later ones by the trigger below.
CREATE TABLE holdfast_outbox (
    projection     TEXT NOT NULL,
    feed           TEXT NOT NULL,
    mode           TEXT NOT NULL CHECK (mode IN ('live', 'shadow', 'off')),
    backfill_until INTEGER,
    PRIMARY KEY (projection, feed)
);

-- The event types, or topics, that each of them handles; '*' stands for all.
CREATE TABLE holdfast_outbox_type (
    event_type TEXT NOT NULL,
    projection TEXT NOT NULL,
    feed       TEXT NOT NULL,
    PRIMARY KEY (event_type, projection, feed)
) WITHOUT ROWID;

-- What came of the attempts at their events, counted in the transactions of the attempts. Several rows for
-- each, so that workers don't wait for each other.
CREATE TABLE holdfast_delivery (
    projection        TEXT NOT NULL,
    feed              TEXT NOT NULL,
    slot              INTEGER NOT NULL,
    applied           INTEGER NOT NULL DEFAULT 0,
    failed            INTEGER NOT NULL DEFAULT 0,
    last_event_id     TEXT,
    last_event_type   TEXT,
    last_processed_at TEXT,
    PRIMARY KEY (projection, feed, slot)
) WITHOUT ROWID;

-- The processes that deliver them, and what they have done. Those that are gone stop being seen.
CREATE TABLE holdfast_relay (
    worker         TEXT PRIMARY KEY,
    projection     TEXT NOT NULL,
    feed           TEXT NOT NULL,
    process        TEXT NOT NULL,
    started_at     TEXT NOT NULL,
    seen_at        TEXT NOT NULL,
    applied        INTEGER NOT NULL DEFAULT 0,
    failed         INTEGER NOT NULL DEFAULT 0,
    looked         INTEGER NOT NULL DEFAULT 0,
    unreadable     INTEGER NOT NULL DEFAULT 0,
    looked_seconds REAL NOT NULL DEFAULT 0,
    ended_at       TEXT
);

-- Puts new events into the queue, in the transaction of the append. Their payload stays in the
-- journal.
CREATE TRIGGER holdfast_enqueue AFTER INSERT ON holdfast_event
WHEN EXISTS (SELECT 1 FROM holdfast_outbox_type WHERE feed = 'journal')
BEGIN
    INSERT INTO holdfast_queue (
        projection, feed, lane, position, stream, version, event_id, event_type, data, metadata,
        recorded_at, status, created_at, updated_at
    )
    SELECT
        t.projection, t.feed, NEW.stream, NEW.position, NEW.stream, NEW.version, NEW.id, NEW.type,
        '', '', NEW.recorded_at, 'pending', NEW.recorded_at, NEW.recorded_at
    FROM holdfast_outbox_type AS t
    WHERE t.feed = 'journal' AND t.event_type IN (NEW.type, '*');

    INSERT INTO holdfast_lane (projection, feed, lane, events, due_at)
    -- A writer's clock may be ahead of everybody's.
    SELECT
        t.projection, t.feed, NEW.stream, 1,
        min(NEW.recorded_at, strftime('%Y-%m-%dT%H:%M:%f000+00:00', 'now'))
    FROM holdfast_outbox_type AS t
    WHERE t.feed = 'journal' AND t.event_type IN (NEW.type, '*')
    ON CONFLICT (projection, feed, lane) DO UPDATE SET events = events + 1;
END;

-- A message on its way to the queue: the table is empty but for a moment, and counts positions.
CREATE TABLE holdfast_message (
    position    INTEGER PRIMARY KEY AUTOINCREMENT,
    topic       TEXT NOT NULL,
    key         TEXT NOT NULL,
    id          TEXT NOT NULL,
    data        TEXT NOT NULL,
    metadata    TEXT NOT NULL,
    sent_at     TEXT NOT NULL,
    -- Whether the sender has chosen the id, so that the message is sent once however often it is sent.
    once        INTEGER NOT NULL
);

-- The ids that senders have chosen, for a time.
CREATE TABLE holdfast_sent (
    id      TEXT NOT NULL,
    topic   TEXT NOT NULL,
    sent_at TEXT NOT NULL,
    PRIMARY KEY (id, topic)
) WITHOUT ROWID;
CREATE INDEX holdfast_sent_at ON holdfast_sent (sent_at);

-- A message that was sent before.
CREATE TRIGGER holdfast_send_again AFTER INSERT ON holdfast_message
WHEN NEW.once AND EXISTS (SELECT 1 FROM holdfast_sent WHERE id = NEW.id AND topic = NEW.topic)
BEGIN
    DELETE FROM holdfast_message WHERE position = NEW.position;
END;

-- Puts a message into the queue of each sink that takes its topic.
CREATE TRIGGER holdfast_send AFTER INSERT ON holdfast_message
WHEN NOT (NEW.once AND EXISTS (SELECT 1 FROM holdfast_sent WHERE id = NEW.id AND topic = NEW.topic))
BEGIN
    INSERT INTO holdfast_queue (
        projection, feed, lane, position, stream, version, event_id, event_type, data, metadata,
        recorded_at, status, created_at, updated_at
    )
    SELECT
        t.projection, t.feed, NEW.key, NEW.position, NEW.key, NEW.position, NEW.id, NEW.topic,
        NEW.data, NEW.metadata, NEW.sent_at, 'pending', NEW.sent_at, NEW.sent_at
    FROM holdfast_outbox_type AS t
    WHERE t.feed = 'messages' AND t.event_type IN (NEW.topic, '*');

    INSERT INTO holdfast_lane (projection, feed, lane, events, due_at)
    SELECT
        t.projection, t.feed, NEW.key, 1,
        min(NEW.sent_at, strftime('%Y-%m-%dT%H:%M:%f000+00:00', 'now'))
    FROM holdfast_outbox_type AS t
    WHERE t.feed = 'messages' AND t.event_type IN (NEW.topic, '*')
    ON CONFLICT (projection, feed, lane) DO UPDATE SET events = events + 1;

    INSERT INTO holdfast_sent (id, topic, sent_at) SELECT NEW.id, NEW.topic, NEW.sent_at WHERE NEW.once;
    DELETE FROM holdfast_message WHERE position = NEW.position;
END;

-- Items with their payload, wherever it is.
CREATE VIEW holdfast_item AS
SELECT
    q.id, q.projection, q.feed, q.lane, q.status, q.attempts, q.retries, q.next_attempt_at,
    q.first_failed_at, q.last_failed_at, q.error_type, q.error_message, q.error_stacktrace, q.history,
    q.resolved_by, q.resolved_at, q.note, q.created_at, q.updated_at,
    q.position, q.stream, q.version, q.event_id, q.event_type,
    CASE WHEN q.data = '' THEN e.data ELSE q.data END AS data,
    CASE WHEN q.data = '' THEN e.metadata ELSE q.metadata END AS metadata,
    q.recorded_at, q.kept
FROM holdfast_queue AS q
LEFT JOIN holdfast_event AS e ON q.data = '' AND e.position = q.position;
