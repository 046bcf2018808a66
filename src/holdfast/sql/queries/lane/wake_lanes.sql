-- Makes lanes due whose heads are events of a stream, and have only waited for other lanes.
UPDATE holdfast_lane SET due_at = :at
WHERE
    projection = :projection AND feed = :feed
    AND lane IN (
        SELECT q.lane FROM holdfast_queue AS q
        WHERE
            q.projection = :projection AND q.feed = :feed AND q.stream = :stream
            AND q.status = 'pending'
            AND NOT EXISTS (
                SELECT 1 FROM holdfast_queue AS h
                WHERE
                    h.projection = q.projection AND h.feed = q.feed AND h.lane = q.lane
                    AND h.position < q.position
                    AND h.status IN ('pending', 'processing', 'failed', 'dead')
            )
    )
RETURNING lane
