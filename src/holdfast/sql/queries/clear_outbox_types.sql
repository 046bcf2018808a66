DELETE FROM holdfast_outbox_type WHERE projection = :projection AND feed = :feed
