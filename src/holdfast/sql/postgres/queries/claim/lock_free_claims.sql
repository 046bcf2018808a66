-- PostgreSQL differs: locks. As hold_claims, but for those that an open append holds: whoever has
-- several must not wait for more.
SELECT lane FROM holdfast_lane
WHERE
    projection = :projection AND feed = :feed AND token = :token
    AND lane = ANY (ARRAY(SELECT json_array_elements_text(CAST(:lanes AS json))))
FOR UPDATE SKIP LOCKED
