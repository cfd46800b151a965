"""Batches between Kafka and files: convert, transform, route, rotate, write.

It is pure but for the files that are open: it asks no server, reads no clock, and decides from
rows, rules and what is given to it.
"""
