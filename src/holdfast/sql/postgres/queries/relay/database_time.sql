-- PostgreSQL differs: its own clock. The time that heartbeats have.
SELECT clock_timestamp()
