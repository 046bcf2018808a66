-- PostgreSQL differs: its own JSON functions, and the server's clock. Counts an attempt at each head. A head
-- that was being tried has lost its worker; its attempt was counted.
UPDATE holdfast_queue
SET
    status = 'processing', attempts = attempts + CASE WHEN status = 'processing' THEN 0 ELSE 1 END,
    claimed_by = :worker, claimed_until = clock_timestamp() + make_interval(secs => CAST(:lease_seconds AS double precision))
WHERE id = ANY (ARRAY(SELECT CAST(json_array_elements_text(CAST(:ids AS json)) AS bigint)))
