"""Joda-Time as the connectors use it: patterns, zones, names and ISO texts, without Java.

Moments are ms since the epoch; *local* ms are those that a clock on the wall of a zone shows.
Source: Joda-Time 2.13, restated; names as OpenJDK 17 gives them.
"""
