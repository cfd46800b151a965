"""Kafka Connect's data: its schemas, and columns of values under them.

A column is an ordinary Arrow array, so partitioners and extractors read its fields as they are;
its schema travels beside it as a `kbackup.columns.Schema` whose ``encoding`` is ``connect``.
"""
