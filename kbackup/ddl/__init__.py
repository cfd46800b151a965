"""A backup as a table of Athena, Hive or Spark: the statement that creates it.

`tables` examines a backup and the configuration that writes it; `columns` derives columns from the
files, `directories` from their folders, and `statement` writes the statement.
"""
