"""A backup as tables: ``restore query``, and ``spark.read.format("kbackup")``.

A topic is one table of whole records.  What names and the ledger say of an object decides whether
it is opened at all; the rest is Spark's.
"""
