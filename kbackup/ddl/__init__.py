"""A backup as a table of Athena, Hive or Spark: the statement that creates it.

`tables` examines a backup and the configuration that writes it, `directories` finds the partition
columns, and `statement` writes the statement.  What files and directories are to the engines, their
formats and partitioners say: see `kbackup.table_parts`.
"""
