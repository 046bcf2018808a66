-- Ends the claims of a projection: its workers can't finish.
UPDATE holdfast_lane SET token = NULL, due_at = :at
WHERE projection = :projection AND feed = :feed AND token IS NOT NULL
