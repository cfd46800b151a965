"""Put a backup back into Kafka, and look at it: the sink read backwards."""
