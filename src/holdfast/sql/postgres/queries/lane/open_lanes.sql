-- PostgreSQL differs: the names come as one JSON document.
DELETE FROM holdfast_lane
WHERE
    projection = :projection AND feed = :feed
    AND lane IN (SELECT json_array_elements_text(CAST(:lanes AS json)))
