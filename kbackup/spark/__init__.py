"""Run tasks on Spark: its session and JVM, its Python workers, and the channel to tasks.

It owns processes, and what driver and tasks tell each other.  It knows neither Kafka nor objects,
and records never cross into the JVM.
"""
