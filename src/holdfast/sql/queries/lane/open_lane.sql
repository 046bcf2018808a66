-- Deletes the row of a lane in which nothing waits.
DELETE FROM holdfast_lane WHERE projection = :projection AND feed = :feed AND lane = :lane
