"""Records by columns, in C.

Records pass between librdkafka and Arrow in a small library, without a Python object for each.  It
works on the clients that confluent-kafka makes, as a plugin of the librdkafka in confluent-kafka's
own wheel, so everything but the records stays with confluent-kafka: configuration, security, logs,
transactions, offsets.  ``native.h`` shows how its source files share the work.

A wheel that was built where nothing compiles C has no library.  Python's path serves then, unless
the operator has asked for this one.
"""
