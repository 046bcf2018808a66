-- PostgreSQL only: whoever does not see this one can tell that there is one.
UPDATE holdfast_outbox_version SET version = version + 1
