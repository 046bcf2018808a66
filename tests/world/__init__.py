"""The world of the crash tests: one app, one worker process, one check of the promises.

app              the events, the projections in which any mistake stays visible, build_app
wanted           what a test wants of a worker, as one value
worker           the process that tests kill: `holdfast run tests.world.worker:app`
build            makes the app that is wanted
process          starts, freezes, wakes, stops and kills such processes
speech           what all these processes do: they speak, and die with the test
checks           the promises: nothing lost, doubled or out of order, rows as recomputed
tables           what the tables hold, read with the plain drivers in one snapshot
progress         waits for the journal's projections and for the outbox
partitions       waits for the partitions of a topic
spoilt           events that fail, hang or kill their process, as files say
fuse             sessions in a test's own process that crash or stand still at a commit
watched          sessions in a worker that end the process at a commit
gate             PostgreSQL and leases, as an accident would change them
appender         appends at random through every failure, as a thread or a process
failing_history  appends events that fail and are mended
queue_operator   the process that requeues, retries and resolves at random
topic            accounts whose events are on Kafka: what each event is
books            what a test itself produces to a topic
producer         the process that produces a share of a history
"""
