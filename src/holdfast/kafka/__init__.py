"""Events from Kafka topics, and to them."""
