-- Where the journal ends, and the event at a position.
SELECT
    (SELECT coalesce(max(h.position), 0) FROM holdfast_event AS h),
    (SELECT CAST(e.id AS text) FROM holdfast_event AS e WHERE e.position = :position)
