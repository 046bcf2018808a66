-- What a person has dealt with stays so when a rewind comes to it again.
SELECT position FROM holdfast_queue
WHERE
    projection = :projection AND feed = :feed AND position > :position AND status = 'resolved'
