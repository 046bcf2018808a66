-- SQLite differs: a connection can't be ended by others.
SELECT 1 WHERE :id = :epoch AND false
