-- How many events there are between two positions.
SELECT count(*) FROM holdfast_event WHERE position > :after AND position <= :through
