-- How many events up to a position were never tried.
SELECT count(*) FROM holdfast_queue
WHERE
    projection = :projection AND feed = :feed AND position <= :position
    AND status = 'pending' AND first_failed_at IS NULL
