-- Whoever is at work on them can't finish.
UPDATE holdfast_lane SET token = NULL, due_at = :at
WHERE projection = :projection AND feed = :feed AND token IS NOT NULL
