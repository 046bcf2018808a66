-- SQLite differs: there is one writer, so that a position that was drawn is committed.
SELECT coalesce(max(position), 0) FROM holdfast_event
