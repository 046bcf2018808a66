"""The way of one event, from a feed into the rows of a projection.

run      the loop of a runner, and the threads it runs in
apply    one transaction: rows, queue and checkpoint
engines  the application of events, by kind of projection
failure  the consequences of a failed event
outbox   delivery by the queue
shards   one projection as several runners
store    what the runtime needs of a database
signals  what the runtime tells logs, metrics and traces
status   the status of a projection
limits   limits of batches, caches and waits
wake     wake-ups of waiting threads
caches   the limit of a cache
"""
