-- SQLite differs: a writing transaction is alone.
SELECT 1
