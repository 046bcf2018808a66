"""How events are written in records.

envelope      the protocol, and a user's function as an envelope
field_path    where in a record a field is, as settings say
holdfast      our own envelope, with the fast path for records of our publisher
json          plain JSON by settings
debezium      the outbox event router of Debezium
cloudevents   CloudEvents in both modes
"""
