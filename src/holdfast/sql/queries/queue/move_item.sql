-- Only now it can be computed which lane the item belongs to.
UPDATE holdfast_queue SET lane = :lane WHERE id = :id
