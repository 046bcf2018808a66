-- Deletes an item that is over, never one that waits.
DELETE FROM holdfast_queue WHERE id = :id AND status IN ('skipped', 'resolved', 'done') RETURNING id
