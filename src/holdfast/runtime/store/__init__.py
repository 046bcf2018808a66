"""What the runtime needs of a database.

checkpoint        how far a projection has come
session           a runner's session
transaction       a runner's open transaction
source            a feed, as it is read
ranges            ranges of the journal
queue_items       items of the queue, and their life
foreign_versions  feeds that other systems write: origins, versions and ids
claims            an outbox worker's right to a lane
leases            a runner's right to a projection
faults            why a projection has stopped
clock             the time
"""
