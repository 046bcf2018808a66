-- PostgreSQL differs: a function. Returns the sinks that have the message in their queues now.
SELECT sink FROM holdfast_send(
    :topic, :key, CAST(CAST(:id AS text) AS uuid), :data, :metadata,
    CAST(CAST(:at AS text) AS timestamptz),
    CAST(:once AS boolean)
)
