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
    id                INTEGER PRIMARY KEY,
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
    needs_reset       INTEGER NOT NULL DEFAULT 0,
    UNIQUE (projection, feed)
);

-- The tables that projections own, and the definition their rows were written under.
CREATE TABLE holdfast_table (
    name       TEXT PRIMARY KEY,
    projection TEXT NOT NULL,
    definition TEXT NOT NULL
);
