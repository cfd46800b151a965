"""The ledger: what a backup knows of itself, under ``_kbackup/ledger/``.

Every object ever stored with its facts, each topic's identity and settings, and every gap.  It is
evidence of what must be there.  A restore never needs it, and a bucket without one restores as
before.  The files are specified in ``docs/reference/storage-format.md``.

`stream` appends small files, finds them again and folds them into snapshots; `rows` defines their
columns, and answers questions about what was read.
"""
