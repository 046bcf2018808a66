-- SQLite differs: a writing transaction is alone anyway.
SELECT 1
