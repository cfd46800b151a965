"""How records travel between Kafka and files: pure, without clock, cluster or store."""
