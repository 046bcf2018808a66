-- A rewind comes to these events again. Resolved items stay resolved.
DELETE FROM holdfast_queue
WHERE
    projection = :projection AND feed = :feed AND status <> 'resolved' AND position > :position
RETURNING id
