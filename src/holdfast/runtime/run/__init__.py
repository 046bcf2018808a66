"""The loop of a runner, and the threads it runs in.

runner          one projection on one feed: the loop
leader          the life of a runner: it stands by, leads, waits, and ends
batch_reader    batches of a feed, bounded in memory
elector         the way to leadership, and its end
worker          what all workers share: context, back-off, fault
hooks           started() and stopped() of a projection
supervisor      workers, a thread each
foreign_source  the source of a feed that another system writes
"""
