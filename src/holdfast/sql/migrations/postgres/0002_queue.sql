ALTER TABLE holdfast_checkpoint
    -- Raised by every change that a person makes; a runner that does not know of it can't commit.
    ADD COLUMN revision bigint NOT NULL DEFAULT 0,
    ADD COLUMN paused_at timestamptz,
    ADD COLUMN paused_by text,
    ADD COLUMN paused_note text,
    ADD COLUMN waiting_until timestamptz,
    ADD COLUMN waiting_for text,
    -- How often in a row a process has died at this position, and the event that was tried alone.
    ADD COLUMN unclean_ends integer NOT NULL DEFAULT 0,
    ADD COLUMN unclean_position bigint,
    ADD COLUMN mark_position bigint,
    ADD COLUMN mark_attempts integer NOT NULL DEFAULT 0;

CREATE TABLE holdfast_queue (
    id               bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    projection       text NOT NULL,
    feed             text NOT NULL,
    lane             text COLLATE "C" NOT NULL,
    position         bigint NOT NULL,
    stream           text COLLATE "C" NOT NULL,
    version          bigint NOT NULL,
    event_id         uuid NOT NULL,
    event_type       text COLLATE "C" NOT NULL,
    data             text NOT NULL,
    metadata         text NOT NULL,
    recorded_at      timestamptz NOT NULL,
    status           text NOT NULL
        CHECK (status IN ('pending', 'processing', 'failed', 'dead', 'skipped', 'resolved')),
    attempts         integer NOT NULL DEFAULT 0,
    retries          integer NOT NULL DEFAULT 0,
    next_attempt_at  timestamptz,
    first_failed_at  timestamptz,
    last_failed_at   timestamptz,
    error_type       text,
    error_message    text,
    error_stacktrace text,
    history          text NOT NULL DEFAULT '[]',
    claimed_by       text,
    claimed_until    timestamptz,
    resolved_by      text,
    resolved_at      timestamptz,
    note             text,
    created_at       timestamptz NOT NULL,
    updated_at       timestamptz NOT NULL,
    CONSTRAINT holdfast_queue_event UNIQUE (projection, feed, position)
);

CREATE INDEX holdfast_queue_lane ON holdfast_queue (projection, feed, lane, position)
    WHERE status IN ('pending', 'processing', 'failed', 'dead');
CREATE INDEX holdfast_queue_status ON holdfast_queue (status, projection, id);

-- A row for each lane that has something outstanding. due_at: when its head, the smallest position,
-- may be tried; NULL while the head waits for a person.
CREATE TABLE holdfast_lane (
    projection text NOT NULL,
    feed       text NOT NULL,
    lane       text COLLATE "C" NOT NULL,
    events     bigint NOT NULL,
    due_at     timestamptz,
    PRIMARY KEY (projection, feed, lane)
);

CREATE TABLE holdfast_audit (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at         timestamptz NOT NULL,
    actor      text NOT NULL,
    action     text NOT NULL,
    projection text,
    subject    text NOT NULL,
    note       text
);
