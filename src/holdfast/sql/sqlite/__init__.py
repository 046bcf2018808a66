"""The driver for SQLite, with its own queries and migrations.

database        connections, leases and wake-ups of one file
connection      one connection: named statements, and rows in bulk
column_values   values as SQLite stores them
range_dialect   the dialect of a SqlProjection's statements
fair_lock       the lock of the one writer, first come, first served
write_queue     the queue of processes for the write lock
side_file       files beside the database, and who may open them
leases          locks on files beside the database
change_watcher  wake-ups after changes by other processes
"""
