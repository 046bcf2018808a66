-- The oldest skipped event.
SELECT min(position) FROM holdfast_queue
WHERE projection = :projection AND feed = :feed AND status = 'skipped'
