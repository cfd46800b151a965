"""A run's frame, the same for both directions: settings, lock, stop, summary, record."""
