-- SQLite differs: a transaction that may write is the only one.
SELECT 1
