-- SQLite differs: its own JSON functions. Deletes items that were applied.
DELETE FROM holdfast_queue WHERE id IN (SELECT value FROM json_each(:ids))
RETURNING id
