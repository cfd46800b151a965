"""A backup as tables: ``restore query``, and ``spark.read.format("kbackup")``.

A topic is one table of whole records.  Object names and the ledger decide which objects are opened
at all; Spark does the rest.
"""
