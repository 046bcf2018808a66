-- Events up to a position that were never tried, and never will be.
DELETE FROM holdfast_queue
WHERE
    projection = :projection AND feed = :feed AND position <= :position
    AND status = 'pending' AND first_failed_at IS NULL
RETURNING id
