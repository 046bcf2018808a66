-- Deletes the rows of lanes in which nothing waits.
DELETE FROM holdfast_lane
WHERE
    projection = :projection AND feed = :feed
    AND NOT EXISTS (
        SELECT 1 FROM holdfast_queue AS q
        WHERE
            q.projection = holdfast_lane.projection AND q.feed = holdfast_lane.feed
            AND q.lane = holdfast_lane.lane
            AND q.status IN ('pending', 'processing', 'failed', 'dead')
    )
