"""Put a backup back into Kafka: plan and check as a whole, write each record once, audit.

Owns what a restore reads, writes, commits and refuses.  It never changes an object of a topic, or
the ledger, and never asks a person or prints.  In the backup it writes its lock, its run record,
rows of translation, what it sets for groups, and a drill's report and scratch list.

`run` is one restore from settings to summary, and `follow` one that goes on with what is new
(`watch` sees it).  Both plan: `plan`, from the `inventory` of the backup; `checks` says what
forbids it, `resume` what is left, `routing` which topics records choose.  They prepare the `target`
and its `schemas`, run tasks (`progress`), and compare what is there with what was written.  In a
task, `task` reads, `transform` chooses and changes, and `transaction` writes and commits.  What
both sides share is in `job`.  `configs` is ``restore configs``: it gives copies the
settings of their originals.

Whatever asks the store raises `StoreError` where that does not answer, and whatever asks the
cluster `KafkaError`; docstrings name other errors.
"""
