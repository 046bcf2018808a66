-- The lane of an item could only be computed now.
UPDATE holdfast_queue SET lane = :lane WHERE id = :id
