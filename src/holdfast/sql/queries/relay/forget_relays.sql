-- Deletes processes that were not seen for long.
DELETE FROM holdfast_relay WHERE projection = :projection AND feed = :feed AND seen_at < :before
