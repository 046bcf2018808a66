-- PostgreSQL only: one registration at a time; appends go on.
LOCK TABLE holdfast_registry IN SHARE ROW EXCLUSIVE MODE
