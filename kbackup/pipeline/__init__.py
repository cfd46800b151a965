"""Rows and batches between Kafka and files: convert, transform, route, rotate, write.

Owns which rows go into which file, and where files end.  It reads no topic, stores no object and
reads no clock but one that is given to it.  It asks no server itself; a converter may ask a
registry for schemas.
"""
