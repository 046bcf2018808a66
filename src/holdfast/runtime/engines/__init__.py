"""Engines: the application of events, by kind of projection.

engine            the port of an engine, and the errors of an event
factory           the engine of a projection
fold              events folded into rows
row_cache         rows in memory
handlers          handlers inside the transaction
lazy_transaction  a transaction that begins on first use
scoped_tx         the transaction that the handler of one event gets
invoke            calls of users' functions, within a time limit
publish           events published to another system
sql_single        a SqlProjection's statements for one event
"""
