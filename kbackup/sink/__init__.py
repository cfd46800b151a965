"""Copy Kafka topics to objects: plan on the driver, run tasks, account for every offset.

Owns where a backup begins and goes on, what is stored under which key, and what is committed.  It
never writes a record to Kafka, but for dead letters.  Only ``sink expire`` deletes an object of a
topic, and no command here restores.
"""
