"""Look into a backup and change nothing: lists, maps, records, queries, tables.

A topic is one table of full records.  Object names and the ledger decide which objects are opened
at all; Spark does the rest.

`tables` examines a backup and the configuration that writes it, `directories` finds the partition
columns, and `statement` writes the statement.  What files and directories are to the engines, their
formats and partitioners say: see `kbackup.connect.tables`.
"""
