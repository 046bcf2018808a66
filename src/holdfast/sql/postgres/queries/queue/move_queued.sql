-- PostgreSQL differs: all at once, from arrays. Gives the items of lanes to other shards.
UPDATE holdfast_queue AS q SET feed = n.to_feed
FROM
    unnest(
        CAST(:feed AS text[]), CAST(:lane AS text[]), CAST(:to_feed AS text[])
    ) AS n (feed, lane, to_feed)
WHERE q.projection = :projection AND q.feed = n.feed AND q.lane = n.lane
