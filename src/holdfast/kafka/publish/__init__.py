"""What holdfast writes to Kafka.

publisher          the journal in a topic
gapless_producer   a producer that keeps the order of streams, without a gap
dead_letters       dead events in a topic
"""
