-- PostgreSQL only: from here on, gives up a lock sooner than the server looks for deadlocks (1 s): an append
-- that holds a lane, and wants one of ours, is not to be their victim.
SET LOCAL lock_timeout = 800
