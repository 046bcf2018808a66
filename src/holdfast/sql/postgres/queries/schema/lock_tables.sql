-- PostgreSQL only: one process at a time prepares tables; readers and writers of rows do not wait.
LOCK TABLE holdfast_table IN SHARE ROW EXCLUSIVE MODE
