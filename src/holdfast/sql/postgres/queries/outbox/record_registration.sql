-- PostgreSQL only: the registrations as appends read them. An append that does not see the new version
-- finds out by the sequence of publish_registration.
UPDATE holdfast_registry AS r
SET
    version = r.version + 1,
    projections = coalesce(n.projections, '{}'),
    types = coalesce(n.types, '{}')
FROM (
    SELECT
        f.feed,
        pg_catalog.array_agg(t.projection ORDER BY t.projection) FILTER (WHERE t.projection IS NOT NULL) AS projections,
        pg_catalog.array_agg(t.types ORDER BY t.projection) FILTER (WHERE t.projection IS NOT NULL) AS types
    FROM holdfast_registry AS f
    LEFT JOIN (
        SELECT o.feed, o.projection, CAST(pg_catalog.array_agg(o.event_type ORDER BY o.event_type) AS text) AS types
        FROM holdfast_outbox_type AS o
        GROUP BY o.feed, o.projection
    ) AS t ON t.feed = f.feed
    GROUP BY f.feed
) AS n
WHERE n.feed = r.feed
