-- SQLite differs: there is one writer, who sees everything.
SELECT 1
