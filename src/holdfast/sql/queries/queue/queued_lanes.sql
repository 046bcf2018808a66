-- Everything in the queue, and every closed lane, by feed and lane.
SELECT feed, lane FROM holdfast_queue WHERE projection = :projection
UNION
SELECT feed, lane FROM holdfast_lane WHERE projection = :projection
