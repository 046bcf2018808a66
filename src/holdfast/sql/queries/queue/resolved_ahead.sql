-- Events after a position that an operator has resolved: a rewind must not apply them again.
SELECT position FROM holdfast_queue
WHERE
    projection = :projection AND feed = :feed AND position > :position AND status = 'resolved'
