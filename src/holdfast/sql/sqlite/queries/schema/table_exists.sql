-- SQLite differs: its own catalogue, which takes the name without quotes.
SELECT 1 FROM sqlite_master WHERE lower(name) = lower(:name) AND :quoted IS NOT NULL
