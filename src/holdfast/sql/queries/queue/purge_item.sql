-- Nothing that still waits is ever deleted.
DELETE FROM holdfast_queue WHERE id = :id AND status IN ('skipped', 'resolved', 'done') RETURNING id
