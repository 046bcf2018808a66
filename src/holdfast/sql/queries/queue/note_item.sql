-- What an operator, or the application, says about an item.
UPDATE holdfast_queue SET note = coalesce(:note, note) WHERE id = :id
