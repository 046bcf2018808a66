"""A runner's store, written once for all databases.

session               a runner's connection, and the leases of a process
transaction           a runner's open transaction
checkpoints           checkpoints as parameters, and errors of a runner that has lost one
foreign_versions      origins, versions and ids of feeds that other systems write
queue_rows            items of the queue, as rows
lane_rows             the rows of closed lanes: set, and recounted
tables                the tables of projections
sql_ranges            the statements of a SqlProjection
head_reader           shared reads at the head of the journal
shard_layouts         the number of shards, and changes of it
start                 where a projection of the journal begins
operator_transaction  operators' changes, tried again after conflicts
audit                 the record of operators' changes
"""
