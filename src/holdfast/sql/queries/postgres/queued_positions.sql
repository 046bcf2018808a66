-- PostgreSQL differs: the positions come as one JSON document. Which of them wait already.
SELECT position FROM holdfast_queue
WHERE
    projection = :projection AND feed = :feed
    AND position IN (SELECT CAST(json_array_elements_text(CAST(:positions AS json)) AS bigint))
    AND status IN ('pending', 'processing', 'failed', 'dead')
