-- Deletes processes that were not seen for long; returns what they have done.
DELETE FROM holdfast_relay WHERE projection = :projection AND feed = :feed AND seen_at < :before
RETURNING applied, failed
