"""Everything that holdfast stores, on PostgreSQL and SQLite. The logic is written once for both.

database       the seam: what a driver provides
queries        named statements in .sql files, a folder for each table
store          a runner's session and transactions
journal        the journal: appends, reads, exports and imports
outbox         registration and claims of outbox projections
operate        reports and changes for operators
postgres       the driver for PostgreSQL
sqlite         the driver for SQLite
event_ranges   ranges of the journal without their events
range_dialect  the dialects of a SqlProjection's statements
migrations     numbered migrations of the schema
url            database URLs, shown without their passwords
values         values as drivers return them
process_name   names of processes in checkpoints
forks          what happens to locks and connections at a fork
"""
