-- PostgreSQL differs: a function takes the locks that concurrent appends and readers need.
SELECT event_position, event_version
FROM holdfast_append(
    CAST(:stream AS text), CAST(:expected AS bigint), CAST(:check_ids AS boolean), CAST(:events AS json)
)
