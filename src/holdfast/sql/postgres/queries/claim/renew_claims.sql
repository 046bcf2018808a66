-- PostgreSQL differs: the server's clock, and lanes that are locked are left out. Prolongs claims.
WITH held AS MATERIALIZED (
    SELECT h.projection, h.feed, h.lane FROM holdfast_lane AS h
    WHERE h.token = ANY (ARRAY(SELECT json_array_elements_text(CAST(:tokens AS json))))
    FOR UPDATE SKIP LOCKED
)
UPDATE holdfast_lane AS l SET due_at = clock_timestamp() + make_interval(secs => CAST(:lease_seconds AS double precision))
FROM held
WHERE l.projection = held.projection AND l.feed = held.feed AND l.lane = held.lane
