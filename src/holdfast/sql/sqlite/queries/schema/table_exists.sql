-- SQLite differs: its own catalogue. The quoted name is for the others.
SELECT 1 FROM sqlite_master WHERE lower(name) = lower(:name) AND :quoted IS NOT NULL
