-- The first and the last version that wait in a lane, where others write the feed. Said in this way, each is
-- one look into an index, on SQLite, and on PostgreSQL before it has statistics.
SELECT
    (
        SELECT version FROM holdfast_queue
        WHERE
            projection = :projection AND feed = :feed AND lane = :lane
            AND status IN ('pending', 'processing', 'failed', 'dead')
            AND feed <> 'journal' AND feed <> 'messages'
        ORDER BY version, position LIMIT 1
    ),
    (
        SELECT version FROM holdfast_queue
        WHERE
            projection = :projection AND feed = :feed AND lane = :lane
            AND status IN ('pending', 'processing', 'failed', 'dead')
            AND feed <> 'journal' AND feed <> 'messages'
        ORDER BY version DESC, position DESC LIMIT 1
    )
