"""What users declare: events, projections, policies. No I/O and no threads.

event               events: appended, stored, and as a handler gets them
projection          the base classes of projections, and @on
policy              the decision that follows a failure
backoff             the number of attempts, and the pauses between them
start               where a projection begins
poll                how a feed is read
tuning              settings that operators change while a projection runs
failure             a failed attempt, and whether its error is transient
definition          a projection, checked and compiled
compile_projection  the compiler from class to definition
event_types         event types by name, and their payloads
json_fidelity       losses of a payload in JSON
rows                rows of a TableProjection, compiled
sql_spec            a SqlProjection, compiled
feed_names          names of the journal, its shards and messages
lane                a closed lane, and the lane of unknown events
foreign_feed        a feed that another system writes
validate            checks of settings
arguments           checks of what callers and operators pass
"""
