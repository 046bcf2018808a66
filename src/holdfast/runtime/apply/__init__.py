"""One transaction: rows, queue and checkpoint.

leadership     a runner's lease, epoch, session and lanes
feed_events    events of the feed, in one transaction
fast_path      events with no closed lane, no pending retry and no earlier decision
parked_events  events of closed lanes, in one transaction
sql_ranges     ranges of the journal, by a SqlProjection's statements
deduplicate    duplicates and early events of other systems' feeds
narrow         the search for the event to blame in a refused batch
outcome        the result of a transaction, and its announcement
"""
