-- SQLite only: the file of a connection, or its name in memory.
SELECT file FROM pragma_database_list WHERE name = 'main'
