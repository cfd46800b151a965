"""A backup as a table of Athena, Hive or Spark: the statement that declares it.

`tables` looks at what a backup holds and at the configuration that writes it; `columns` says what
the files hold, `directories` what their folders say, `statement` puts both into words.
"""
