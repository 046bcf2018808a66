-- PostgreSQL differs: a function. Returns the sinks that have the message in their queues now.
SELECT sink FROM holdfast_send(
    CAST(:topic AS text), CAST(:key AS text), CAST(CAST(:id AS text) AS uuid), CAST(:data AS text),
    CAST(:metadata AS text), CAST(CAST(:at AS text) AS timestamptz), CAST(:once AS boolean)
)
