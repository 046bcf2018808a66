-- Whether a person has dealt with a version of a stream.
SELECT 1 FROM holdfast_queue
WHERE
    status = 'resolved' AND projection = :projection AND feed = :feed
    AND stream = :stream AND version = :version
LIMIT 1
