"""How fast kbackup is, and what it takes: ``nox -s bench``, or ``python -m benchmarks --help``.

Each figure stands beside what Kafka's own performance tools and bare loops of the Python client
reach in the same run, on the same broker, with the same records and as many processes.
"""
