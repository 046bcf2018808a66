-- SQLite only: the file that a connection is on, or its name if it is in memory.
SELECT file FROM pragma_database_list WHERE name = 'main'
