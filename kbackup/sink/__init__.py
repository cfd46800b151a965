"""Copy Kafka topics to objects: plan on the driver, run tasks, account for every offset."""
