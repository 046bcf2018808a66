-- Nothing waits in the lane.
DELETE FROM holdfast_lane WHERE projection = :projection AND feed = :feed AND lane = :lane
