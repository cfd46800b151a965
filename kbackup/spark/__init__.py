"""Spark.  Only this folder imports pyspark, and only when a run has something to do."""
