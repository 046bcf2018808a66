-- PostgreSQL only: those who prepare tables take turns; readers and writers of rows don't wait.
LOCK TABLE holdfast_table IN SHARE ROW EXCLUSIVE MODE
