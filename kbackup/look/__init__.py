"""The commands that look into a backup and change nothing: ``topics`` and ``peek``."""
