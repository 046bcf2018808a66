-- PostgreSQL differs: it locks rows. Nobody changes these lanes before the transaction ends.
SELECT 1 FROM holdfast_lane
WHERE projection = :projection AND feed = :feed
ORDER BY lane
FOR UPDATE
