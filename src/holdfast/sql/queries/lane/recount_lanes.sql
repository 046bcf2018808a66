-- Counts the events that wait, for all lanes of a projection.
UPDATE holdfast_lane
SET events = (
    SELECT count(*) FROM holdfast_queue AS q
    WHERE
        q.projection = holdfast_lane.projection AND q.feed = holdfast_lane.feed
        AND q.lane = holdfast_lane.lane
        AND q.status IN ('pending', 'processing', 'failed', 'dead')
)
WHERE projection = :projection AND feed = :feed
