"""``restore verify``: check that a backup is whole, readable and undamaged.

Owns the list of what is checked, the tasks that read objects for it, and what makes the ledger fit
the bucket again.  It never writes an object of a topic, and never deletes one.
"""
