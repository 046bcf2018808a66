-- The feeds and lanes that the queue or a closed lane names.
SELECT feed, lane FROM holdfast_queue WHERE projection = :projection
UNION
SELECT feed, lane FROM holdfast_lane WHERE projection = :projection
