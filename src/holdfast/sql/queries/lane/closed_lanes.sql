-- The lanes that have something outstanding.
SELECT lane, events, due_at FROM holdfast_lane WHERE projection = :projection AND feed = :feed
