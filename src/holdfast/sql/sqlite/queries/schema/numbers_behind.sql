-- SQLite differs: AUTOINCREMENT never draws a number below the largest one of the table.
SELECT NULL WHERE FALSE
