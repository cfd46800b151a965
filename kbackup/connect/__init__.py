"""Kafka Connect's data: its schemas, and columns of values with these schemas.

Owns Connect's types, their Avro, JSON and Protobuf, and the interface of schema registries.  It
never reads a topic or an object; only `kbackup.connect.registry.client` asks a server.

A column is an ordinary Arrow array, so partitioners and extractors read its fields directly;
its schema accompanies it as a `kbackup.records.Schema` whose ``encoding`` is ``connect``.
"""
