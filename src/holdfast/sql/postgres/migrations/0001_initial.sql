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
    -- When the event failed first, how often it has, and how often it may; NULL is no limit.
    error_since       timestamptz,
    error_attempts    integer NOT NULL DEFAULT 0,
    error_limit       integer,
    needs_reset       boolean NOT NULL DEFAULT false,
    -- Raised by every change of an operator; a runner that does not know of it can't commit.
    revision          bigint NOT NULL DEFAULT 0,
    paused_at         timestamptz,
    paused_by         text,
    paused_note       text,
    waiting_until     timestamptz,
    waiting_for       text,
    -- How often in a row a process has died at this position, and the event that was tried alone.
    unclean_ends      integer NOT NULL DEFAULT 0,
    unclean_position  bigint,
    mark_position     bigint,
    mark_attempts     integer NOT NULL DEFAULT 0,
    -- What tells the feed from another one of its name, where others write it.
    origin            text,
    -- The process to which the leader should leave it.
    asked_by          text,
    UNIQUE (projection, feed)
) WITH (fillfactor = 50);

-- How many shards each projection has. While that is changed: how many it will have, and the position up
-- to which the present ones go before. start_position: where it has begun, if the code says that.
CREATE TABLE holdfast_layout (
    projection     text PRIMARY KEY,
    shards         integer NOT NULL,
    next_shards    integer,
    barrier        bigint,
    start_position bigint
);

-- Settings that operators have set in place of the code's; value is JSON.
CREATE TABLE holdfast_setting (
    projection text NOT NULL,
    name       text NOT NULL,
    value      text NOT NULL,
    set_at     timestamptz NOT NULL,
    set_by     text NOT NULL,
    note       text,
    PRIMARY KEY (projection, name)
);

-- The tables that projections own, and the definition their rows were written under.
CREATE TABLE holdfast_table (
    name       text PRIMARY KEY,
    projection text NOT NULL,
    definition text NOT NULL
);

-- What waits to be tried, or to be looked at by an operator. Where data is empty, payload and metadata
-- are in the journal.
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
    -- pending, processing, failed, dead, skipped, resolved or done. No CHECK says so: PostgreSQL would
    -- parse it anew for every append.
    status           text NOT NULL,
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
    -- What the event was read from, where others have written it.
    kept             text,
    created_at       timestamptz NOT NULL,
    updated_at       timestamptz NOT NULL,
    -- The position first: before there are statistics, a planner would take an index that begins with the
    -- projection for one on the head of a lane, and go through all of them.
    CONSTRAINT holdfast_queue_event UNIQUE (position, projection, feed)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

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
    projection text NOT NULL,
    feed       text NOT NULL,
    lane       text COLLATE "C" NOT NULL,
    events     bigint NOT NULL,
    due_at     timestamptz,
    -- The token of the claim: without it, a worker may not finish what it began.
    token      text,
    -- Whether its head has failed before: what is tried again gets a part of the workers.
    has_failed boolean NOT NULL DEFAULT false,
    -- The lane first, for the same reason as above.
    PRIMARY KEY (lane, projection, feed)
) WITH (
    fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000
);

CREATE INDEX holdfast_lane_due ON holdfast_lane (projection, feed, has_failed, due_at)
    WHERE due_at IS NOT NULL;
CREATE INDEX holdfast_lane_token ON holdfast_lane (token) WHERE token IS NOT NULL;

-- The last version of each stream that a projection has passed, where others write the feed and number its
-- streams. previous: the version before, which nobody may have changed when this one is written.
CREATE TABLE holdfast_stream (
    projection text NOT NULL,
    stream     text COLLATE "C" NOT NULL,
    version    bigint NOT NULL,
    previous   bigint NOT NULL,
    feed       text NOT NULL,
    -- When the last event was recorded, where streams may begin again.
    last_at    timestamptz,
    PRIMARY KEY (stream, projection)
) WITH (fillfactor = 70);

-- The last events that a projection has passed, where nobody numbers the streams.
CREATE TABLE holdfast_seen (
    event_id   uuid NOT NULL,
    projection text NOT NULL,
    feed       text NOT NULL,
    position   bigint NOT NULL,
    PRIMARY KEY (event_id, projection)
);
CREATE INDEX holdfast_seen_position ON holdfast_seen (projection, feed, position);

CREATE TABLE holdfast_audit (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at         timestamptz NOT NULL,
    actor      text NOT NULL,
    action     text NOT NULL,
    projection text,
    subject    text NOT NULL,
    note       text
);

-- The projections that are delivered by the queue. Events up to the checkpoint are applied or in the
-- queue; those up to backfill_until come there by the backfill, later ones by holdfast_append.
CREATE TABLE holdfast_outbox (
    projection     text NOT NULL,
    feed           text NOT NULL,
    mode           text NOT NULL CHECK (mode IN ('live', 'shadow', 'off')),
    backfill_until bigint,
    PRIMARY KEY (projection, feed)
);

-- The event types, or topics, that each of them handles; '*' stands for all.
CREATE TABLE holdfast_outbox_type (
    event_type text COLLATE "C" NOT NULL,
    projection text NOT NULL,
    feed       text NOT NULL,
    PRIMARY KEY (event_type, projection, feed)
);

-- The same, for appends: a row for each feed, with its projections and their types, each as the text of
-- an array. It counts registrations; the sequence, which depends on no snapshot, says how many of them
-- are committed.
CREATE TABLE holdfast_registry (
    feed        text PRIMARY KEY,
    version     bigint NOT NULL DEFAULT 0,
    projections text[] NOT NULL DEFAULT '{}',
    types       text[] NOT NULL DEFAULT '{}'
);
INSERT INTO holdfast_registry (feed) VALUES ('journal'), ('messages');
CREATE SEQUENCE holdfast_registry_seen;

-- What came of the attempts at their events, counted in the transactions of the attempts. Several rows for
-- each, so that workers don't wait for each other.
CREATE TABLE holdfast_delivery (
    projection        text NOT NULL,
    feed              text NOT NULL,
    slot              integer NOT NULL,
    applied           bigint NOT NULL DEFAULT 0,
    failed            bigint NOT NULL DEFAULT 0,
    last_event_id     uuid,
    last_event_type   text,
    last_processed_at timestamptz,
    PRIMARY KEY (projection, feed, slot)
) WITH (fillfactor = 50);

-- The processes that deliver them, and what they have done. Those that are gone stop being seen.
CREATE TABLE holdfast_relay (
    worker         text PRIMARY KEY,
    projection     text NOT NULL,
    feed           text NOT NULL,
    process        text NOT NULL,
    started_at     timestamptz NOT NULL,
    seen_at        timestamptz NOT NULL,
    applied        bigint NOT NULL DEFAULT 0,
    failed         bigint NOT NULL DEFAULT 0,
    looked         bigint NOT NULL DEFAULT 0,
    unreadable     bigint NOT NULL DEFAULT 0,
    looked_seconds double precision NOT NULL DEFAULT 0,
    ended_at       timestamptz
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
    q.recorded_at, q.kept
FROM holdfast_queue AS q
LEFT JOIN holdfast_event AS e ON q.data = '' AND e.position = q.position;

-- The functions see this schema and the server's own, whatever the search path of the caller is. In these
-- functions and in all our statements, every operator and function is called with exactly its own types:
-- otherwise PostgreSQL would prefer one that anybody who may create objects in the schema has planted there.
SELECT pg_catalog.set_config(
    'search_path', pg_catalog.quote_ident(CAST(current_schema() AS text)) || CAST(', pg_temp' AS text), true
);

-- Appends events and returns their positions and versions, or nothing at all where the stream is
-- not at the expected version or one of the ids is known. It never raises for these, so that a
-- caller's transaction stays usable. Events of outbox projections go into the queue as well.
CREATE FUNCTION holdfast_append(
    p_stream text, p_expected bigint, p_check_ids boolean, p_events json
) RETURNS TABLE (event_position bigint, event_version bigint) LANGUAGE plpgsql
-- A plan made while the journal was small must not scan it when it has grown.
SET enable_seqscan = off
SET search_path FROM CURRENT
AS $$
DECLARE
    v_current bigint;
    v_registrations bigint;
    v_registry holdfast_registry;
    v_projection text;
    v_types text[];
    v_now timestamptz;
    v_queued bigint;
BEGIN
    -- Appends to one stream take turns; what follows sees the ones before.
    PERFORM pg_advisory_xact_lock(x'48465354'::int, hashtext(p_stream));

    SELECT coalesce(max(e.version), 0) INTO v_current FROM holdfast_event e WHERE e.stream = p_stream;
    IF v_current <> p_expected THEN
        RETURN;
    END IF;
    IF p_check_ids AND EXISTS (
        SELECT FROM holdfast_event e
        WHERE e.id IN (SELECT (n.value ->> 'id'::text)::uuid FROM json_array_elements(p_events) AS n)
    ) THEN
        RETURN;
    END IF;

    -- Tells readers that positions above this bound may still appear: see settled.py. Once per
    -- transaction is enough, and keeps a transaction of many appends within the lock table.
    IF coalesce(current_setting('holdfast.appending'::text, true), '') = '' THEN
        PERFORM
            pg_advisory_xact_lock_shared(
                (('holdfast_event'::regclass::oid::bigint & 32767::bigint) << 48)
                | CASE WHEN s.is_called THEN s.last_value ELSE 0::bigint END
            ),
            set_config('holdfast.appending'::text, 'yes'::text, true)
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

    -- Not before the positions are drawn: a backfill goes up to the last position that was drawn when
    -- its projection was shown here. NULL where there has never been one.
    v_registrations := coalesce(pg_sequence_last_value('holdfast_registry_seen'::regclass), 0);
    -- A statement of its own sees what was committed before; unless the transaction looks at the past.
    -- Then it would leave the queue without these events.
    SELECT * INTO v_registry FROM holdfast_registry r WHERE r.feed = 'journal';
    IF v_registrations > v_registry.version THEN
        RAISE EXCEPTION USING
            ERRCODE = 'serialization_failure',
            MESSAGE = 'an outbox projection was registered or forgotten after this transaction began; '
                'try again';
    END IF;
    FOR n IN 1 .. pg_catalog.cardinality(v_registry.projections) LOOP
        v_projection := v_registry.projections[n];
        v_types := v_registry.types[n];
        v_now := clock_timestamp();
        INSERT INTO holdfast_queue (
            projection, feed, lane, position, stream, version, event_id, event_type, data, metadata,
            recorded_at, status, created_at, updated_at
        )
        SELECT
            v_projection, 'journal', p_stream, e.position, p_stream, e.version, e.id, e.type, '', '',
            e.recorded_at, 'pending', v_now, v_now
        FROM holdfast_event e
        WHERE
            e.stream = p_stream AND e.version > v_current
            AND ('*' = ANY (v_types) OR e.type = ANY (v_types));
        GET DIAGNOSTICS v_queued = ROW_COUNT;
        IF v_queued > 0 THEN
            INSERT INTO holdfast_lane AS l (projection, feed, lane, events, due_at)
            VALUES (v_projection, 'journal', p_stream, v_queued, v_now)
            ON CONFLICT (projection, feed, lane) DO UPDATE SET events = l.events + excluded.events;
        END IF;
    END LOOP;
END
$$;

-- The order of messages, and what tells them apart.
CREATE SEQUENCE holdfast_message_position;

-- The ids that senders have chosen, for a time.
CREATE TABLE holdfast_sent (
    id      uuid NOT NULL,
    topic   text COLLATE "C" NOT NULL,
    sent_at timestamptz NOT NULL,
    PRIMARY KEY (id, topic)
);
CREATE INDEX holdfast_sent_at ON holdfast_sent (sent_at);

-- Puts a message into the queue of each sink that takes its topic; returns a row for each of them. With
-- p_once, a message that was sent before is not sent again.
CREATE FUNCTION holdfast_send(
    p_topic text, p_key text, p_id uuid, p_data text, p_metadata text, p_at timestamptz, p_once boolean
) RETURNS TABLE (sink text, message_position bigint) LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
    v_registry holdfast_registry;
    v_is_new boolean;
BEGIN
    SELECT * INTO v_registry FROM holdfast_registry r WHERE r.feed = 'messages';
    IF coalesce(pg_sequence_last_value('holdfast_registry_seen'::regclass), 0) > v_registry.version THEN
        RAISE EXCEPTION USING
            ERRCODE = 'serialization_failure',
            MESSAGE = 'a sink was registered or forgotten after this transaction began; try again';
    END IF;
    FOR n IN 1 .. pg_catalog.cardinality(v_registry.projections) LOOP
        CONTINUE WHEN v_registry.types[n] <> '{*}' AND p_topic <> ALL (v_registry.types[n]::text[]);
        sink := v_registry.projections[n];
        IF p_once AND v_is_new IS NULL THEN
            INSERT INTO holdfast_sent (id, topic, sent_at) VALUES (p_id, p_topic, p_at)
            ON CONFLICT (id, topic) DO NOTHING;
            v_is_new := FOUND;
        END IF;
        IF NOT v_is_new THEN
            RETURN NEXT;
            CONTINUE;
        END IF;
        -- The lane first: those who send with one key take turns, and draw their positions in them.
        INSERT INTO holdfast_lane AS l (projection, feed, lane, events, due_at)
        VALUES (sink, 'messages', p_key, 1, clock_timestamp())
        ON CONFLICT (projection, feed, lane) DO UPDATE SET events = l.events + 1;
        message_position := nextval('holdfast_message_position'::regclass);
        INSERT INTO holdfast_queue (
            projection, feed, lane, position, stream, version, event_id, event_type, data, metadata,
            recorded_at, status, created_at, updated_at
        )
        VALUES (
            sink, 'messages', p_key, message_position, p_key, message_position, p_id, p_topic, p_data,
            p_metadata, p_at, 'pending', p_at, p_at
        );
        RETURN NEXT;
    END LOOP;
END
$$;
