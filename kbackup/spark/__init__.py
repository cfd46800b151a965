"""Run tasks on Spark: its session and JVM, its Python workers, and the channel to tasks.

Owns Spark's processes, and the way driver and tasks talk.  It knows neither Kafka nor objects.  No
record of a run crosses into the JVM; only the tables of `kbackup.inspect` do.
"""
