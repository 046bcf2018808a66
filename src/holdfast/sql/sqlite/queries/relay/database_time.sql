-- SQLite differs: its own clock. The time that heartbeats have.
SELECT strftime('%Y-%m-%dT%H:%M:%f000+00:00', 'now')
