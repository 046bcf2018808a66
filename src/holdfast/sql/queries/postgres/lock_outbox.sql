-- PostgreSQL only: one registration at a time; appends go on.
LOCK TABLE holdfast_outbox_version IN SHARE ROW EXCLUSIVE MODE
