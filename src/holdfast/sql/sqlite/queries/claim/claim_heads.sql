-- SQLite differs: the ids come as one JSON document. Counts an attempt at each head; one that was being
-- tried has lost its worker, and that attempt is counted.
UPDATE holdfast_queue
SET
    status = 'processing', attempts = attempts + CASE WHEN status = 'processing' THEN 0 ELSE 1 END,
    claimed_by = :worker, claimed_until = :lease_until
WHERE id IN (SELECT value FROM json_each(:ids))
