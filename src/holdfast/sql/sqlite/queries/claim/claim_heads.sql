-- SQLite differs: its own JSON functions, and the process's clock. Counts an attempt at each head. A head
-- that was being tried has lost its worker; its attempt was counted.
UPDATE holdfast_queue
SET
    status = 'processing', attempts = attempts + CASE WHEN status = 'processing' THEN 0 ELSE 1 END,
    claimed_by = :worker, claimed_until = :lease_until
WHERE id IN (SELECT value FROM json_each(:ids))
