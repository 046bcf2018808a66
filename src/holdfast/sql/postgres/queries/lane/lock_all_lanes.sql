-- PostgreSQL differs: locks. Nobody changes the lanes that are there before the transaction ends.
SELECT 1 FROM holdfast_lane
WHERE projection = :projection AND feed = :feed
ORDER BY lane
FOR UPDATE
