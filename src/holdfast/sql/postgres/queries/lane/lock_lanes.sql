-- PostgreSQL differs: locks. Nobody else changes these lanes before the transaction ends.
SELECT 1 FROM holdfast_lane
WHERE
    projection = :projection AND feed = :feed
    AND lane = ANY (ARRAY(SELECT json_array_elements_text(CAST(:lanes AS json))))
ORDER BY lane
FOR UPDATE
