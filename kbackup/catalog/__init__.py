"""The contents of a backup: its objects, their claims, the ledger, and the coverage of offsets.

Owns what a backup holds and says of itself: identity, listing, ledger, keys, captures, schemas,
reports of drills.  It reads all of it, writes its own part of ``_kbackup/``, and brings objects
into a second store.  It never asks Kafka, and never deletes an object of a topic.
"""
