"""Java's regular expressions, Joda-Time and Jackson's JSON, without Java.

Owns what kbackup repeats of Java's behavior.  It never starts Java: `kbackup.spark.java` does, and
`kbackup.local`.
"""
