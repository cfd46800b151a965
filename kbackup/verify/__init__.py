"""``restore verify``: is a backup whole, readable and undamaged."""
