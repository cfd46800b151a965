"""Sink and restore as they are, over a fake cluster and a fake bucket that fail by a seeded script.

``process``   a run as the world sees it: its requests, where it dies, who runs beside it
``cluster``   Kafka in memory, and the connection that opens its clients
``bucket``    an object store in memory
``events``    what happened, as it was and not as kbackup says
``promises``  the checker: events in, broken promises out
``play``      a script of steps made from a number, and its performance
``mixed_*``   the other family: layouts, formats, groups and people over the same offsets
``planted``   defects put back one at a time, to see that they are found
"""
