-- PostgreSQL differs: it locks rows. As lock_claims, without the lanes that an open append has locked: a
-- worker that has locked some lanes must not wait for others.
SELECT lane FROM holdfast_lane
WHERE
    projection = :projection AND feed = :feed AND token = :token
    AND lane = ANY (ARRAY(SELECT json_array_elements_text(CAST(:lanes AS json))))
FOR UPDATE SKIP LOCKED
