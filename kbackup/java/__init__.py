"""Java's ways: its regular expressions, Joda-Time and Jackson's JSON, without Java."""
