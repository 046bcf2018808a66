-- SQLite differs: the positions come as one JSON document. Which of them wait already.
SELECT position FROM holdfast_queue
WHERE
    projection = :projection AND feed = :feed
    AND position IN (SELECT value FROM json_each(:positions))
    AND status IN ('pending', 'processing', 'failed', 'dead')
