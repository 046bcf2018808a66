-- SQLite differs: nobody else can end a connection.
SELECT 1 WHERE :id = :epoch AND false
