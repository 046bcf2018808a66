-- A rewind comes to these events again. What a person has dealt with stays so.
DELETE FROM holdfast_queue
WHERE
    projection = :projection AND feed = :feed AND status <> 'resolved' AND position > :position
RETURNING id
