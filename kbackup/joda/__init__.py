"""Joda-Time as the connectors use it: patterns, zones, names and ISO texts, without Java.

Moments are ms since the epoch; *local* ms are the wall-clock time of a zone.
Source: Joda-Time 2.13, restated; names as in OpenJDK 17.
"""
