-- PostgreSQL differs: its own JSON functions, and the server's clock. The claims of these lanes end now;
-- their heads' workers are lost, and the next claim says so.
UPDATE holdfast_lane SET due_at = clock_timestamp()
WHERE
    projection = :projection AND feed = :feed AND token = :token
    AND lane = ANY (ARRAY(SELECT json_array_elements_text(CAST(:lanes AS json))))
