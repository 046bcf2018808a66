-- PostgreSQL only: the last position drawn by any append, committed or not.
SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM holdfast_event_position_seq
