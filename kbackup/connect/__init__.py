"""Kafka Connect's data: its schemas, and columns of values with these schemas.

A column is an ordinary Arrow array, so partitioners and extractors read its fields directly;
its schema accompanies it as a `kbackup.records.Schema` whose ``encoding`` is ``connect``.
"""
