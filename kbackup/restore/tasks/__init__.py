"""What a task of a restore does: objects to records, and records to Kafka, with the position."""
