-- SQLite differs: its own JSON functions. The ids among these whose events are in the queue. The condition
-- on the feed is the index's own: without it, the index is not used.
SELECT event_id FROM holdfast_queue
WHERE
    projection = :projection AND feed <> 'journal' AND feed <> 'messages'
    AND event_id IN (SELECT value FROM json_each(:ids))
