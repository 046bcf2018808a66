-- SQLite differs: a writing transaction is alone anyway, and needs no row to lock.
SELECT 1
