-- Whether an operator has resolved a version of a stream.
SELECT 1 FROM holdfast_queue
WHERE
    status = 'resolved' AND projection = :projection AND feed = :feed
    AND stream = :stream AND version = :version
    -- One that came too early says nothing of those that it missed.
    AND (CAST(:even_early AS boolean) OR coalesce(error_type, '') <> 'VersionGap')
LIMIT 1
