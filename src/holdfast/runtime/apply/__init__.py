"""One transaction: rows, queue and checkpoint.

leadership     a runner's lease, epoch, session and lanes
feed_events    events of the feed, in one transaction
parked_events  events of closed lanes, in one transaction
sql_ranges     ranges of the journal, by a SqlProjection's statements
deduplicate    duplicates and early events of other systems' feeds
narrow         the search for the event to blame in a refused batch
outcome        the result of a transaction, and its announcement
"""
