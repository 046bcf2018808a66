-- Changes the mode for all processes, from the next claim on.
UPDATE holdfast_outbox SET mode = :mode
WHERE projection = :projection AND feed = :feed AND mode <> :mode
RETURNING mode
