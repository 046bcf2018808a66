-- SQLite differs: the one writer sees every registration.
SELECT 1
