-- SQLite differs: with one writer, every position that was drawn is committed.
SELECT coalesce(max(position), 0) FROM holdfast_event
