-- PostgreSQL differs: it locks rows. The lanes of a claim that are still ours; no append and no operator
-- changes them before the transaction ends.
SELECT lane FROM holdfast_lane
WHERE
    projection = :projection AND feed = :feed AND token = :token
    AND lane = ANY (ARRAY(SELECT json_array_elements_text(CAST(:lanes AS json))))
ORDER BY lane
FOR UPDATE
