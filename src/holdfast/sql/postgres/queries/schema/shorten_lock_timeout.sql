-- PostgreSQL only: gives up a lock before the server looks for deadlocks (1 s). Otherwise an append that has
-- locked a lane, and waits for one of ours, could be the victim.
SET LOCAL lock_timeout = 800
