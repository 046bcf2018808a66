-- Raised by every change that a person makes; a runner that does not know of it can't commit.
ALTER TABLE holdfast_checkpoint ADD COLUMN revision INTEGER NOT NULL DEFAULT 0;
ALTER TABLE holdfast_checkpoint ADD COLUMN paused_at TEXT;
ALTER TABLE holdfast_checkpoint ADD COLUMN paused_by TEXT;
ALTER TABLE holdfast_checkpoint ADD COLUMN paused_note TEXT;
ALTER TABLE holdfast_checkpoint ADD COLUMN waiting_until TEXT;
ALTER TABLE holdfast_checkpoint ADD COLUMN waiting_for TEXT;
-- How often in a row a process has died at this position, and the event that was tried alone.
ALTER TABLE holdfast_checkpoint ADD COLUMN unclean_ends INTEGER NOT NULL DEFAULT 0;
ALTER TABLE holdfast_checkpoint ADD COLUMN unclean_position INTEGER;
ALTER TABLE holdfast_checkpoint ADD COLUMN mark_position INTEGER;
ALTER TABLE holdfast_checkpoint ADD COLUMN mark_attempts INTEGER NOT NULL DEFAULT 0;

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
    status           TEXT NOT NULL
        CHECK (status IN ('pending', 'processing', 'failed', 'dead', 'skipped', 'resolved')),
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
    created_at       TEXT NOT NULL,
    updated_at       TEXT NOT NULL,
    CONSTRAINT holdfast_queue_event UNIQUE (projection, feed, position)
);

CREATE INDEX holdfast_queue_lane ON holdfast_queue (projection, feed, lane, position)
    WHERE status IN ('pending', 'processing', 'failed', 'dead');
CREATE INDEX holdfast_queue_status ON holdfast_queue (status, projection, id);

-- A row for each lane that has something outstanding. due_at: when its head, the smallest position,
-- may be tried; NULL while the head waits for a person.
CREATE TABLE holdfast_lane (
    projection TEXT NOT NULL,
    feed       TEXT NOT NULL,
    lane       TEXT NOT NULL,
    events     INTEGER NOT NULL,
    due_at     TEXT,
    PRIMARY KEY (projection, feed, lane)
);

CREATE TABLE holdfast_audit (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    at         TEXT NOT NULL,
    actor      TEXT NOT NULL,
    action     TEXT NOT NULL,
    projection TEXT,
    subject    TEXT NOT NULL,
    note       TEXT
);
