"""The driver for PostgreSQL, with its own queries and migrations.

database        connections, leases and wake-ups of one database
connection      one connection: named statements, and rows in bulk
handler_tx      the transaction as handlers see it
settled         settled positions: what a reader may pass for good
prefetch        the next events, read ahead by the server
row_statements  statements for the rows of a TableProjection
array_packing   columns of values as binary arrays
column_types    the type for each kind of column
range_dialect   the dialect of a SqlProjection's statements
pooler          connection poolers, and whether they keep sessions
timeouts        settings of a connection, and limits of time
pool            connections for appends and quick reads
waits           who waits for whom, as errors tell it
privileges      rights that a role lacks
leases          advisory locks, and the connection that holds them
notify          notifications to other processes
"""
