-- SQLite differs: its own JSON functions.
SELECT event_id FROM holdfast_seen
WHERE projection = :projection AND event_id IN (SELECT value FROM json_each(:ids))
