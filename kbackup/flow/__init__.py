"""The way of records between Kafka and files: pure, without clock, cluster or store."""
