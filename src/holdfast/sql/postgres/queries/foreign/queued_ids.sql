-- PostgreSQL differs: its own JSON functions. The ids among these whose events are in the queue. The
-- condition on the feed is the index's own: without it, the index is not used.
SELECT CAST(q.event_id AS text) FROM holdfast_queue AS q
WHERE
    q.projection = :projection AND q.feed <> 'journal' AND q.feed <> 'messages'
    AND q.event_id IN (
        SELECT CAST(n.value AS uuid) FROM json_array_elements_text(CAST(:ids AS json)) AS n (value)
    )
