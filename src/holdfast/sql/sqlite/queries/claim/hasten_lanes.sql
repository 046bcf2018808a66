-- SQLite differs: the process's clock. Makes lanes due that a clock ahead of this one has put off: nothing waits
-- that has not failed yet, or has failed in the future; and no claim lasts longer than its lease.
UPDATE holdfast_lane SET due_at = CASE WHEN token IS NULL THEN :now ELSE :lease_until END
WHERE
    projection = :projection AND feed = :feed AND has_failed IN (0, 1) AND due_at > :now
    AND CASE
        WHEN token IS NOT NULL THEN due_at > :lease_until
        ELSE EXISTS (
            SELECT 1 FROM holdfast_queue AS q
            WHERE
                q.projection = holdfast_lane.projection AND q.feed = holdfast_lane.feed
                AND q.position = (
                    SELECT min(h.position) FROM holdfast_queue AS h
                    WHERE
                        h.projection = holdfast_lane.projection AND h.feed = holdfast_lane.feed
                        AND h.lane = holdfast_lane.lane
                        AND h.status IN ('pending', 'processing', 'failed', 'dead')
                )
                AND (q.status = 'pending' OR q.last_failed_at > :now)
        )
    END
