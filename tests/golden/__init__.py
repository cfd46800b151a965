"""Backups as they were when what is stored was frozen."""
