-- The closed lanes of a projection.
SELECT lane, events, due_at FROM holdfast_lane WHERE projection = :projection AND feed = :feed
