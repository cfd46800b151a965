"""Copy Kafka topics to objects: plan on the driver, run tasks, account for every offset.

It owns where a backup begins and goes on, what is stored under which key, and what is committed.
It never restores, and never deletes an object.
"""
