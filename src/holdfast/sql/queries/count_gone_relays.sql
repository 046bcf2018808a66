-- What processes that are gone have done is counted with the rest.
UPDATE holdfast_outbox
SET
    applied = applied + (
        SELECT CAST(coalesce(sum(r.applied), 0) AS bigint) FROM holdfast_relay AS r
        WHERE r.projection = :projection AND r.feed = :feed AND r.seen_at < :before
    ),
    failed = failed + (
        SELECT CAST(coalesce(sum(r.failed), 0) AS bigint) FROM holdfast_relay AS r
        WHERE r.projection = :projection AND r.feed = :feed AND r.seen_at < :before
    )
WHERE projection = :projection AND feed = :feed
