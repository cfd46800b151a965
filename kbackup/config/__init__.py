"""Settings: read from options, variables and files, checked once, then frozen.

Owns the names, defaults, origins and checks of all settings; plugins declare their own.  It never
asks Kafka or the store; it asks AWS for a value that names a secret there.  A run imports nothing
that loads.

One declaration of a property (`PROPERTIES`) gives its option ``--a-b-c``, its variable
``KBACKUP_A_B_C``, its name ``a.b.c`` in files, and its documentation.  `loading.load` gives a
command its `Settings`; `loading.check` returns every error and warning about a file.
"""

from kbackup.config.issues import ConfigIssue, Origin
from kbackup.config.property import Property
from kbackup.config.settings import PROPERTIES, Settings

__all__ = [
    "PROPERTIES",
    "ConfigIssue",
    "Origin",
    "Property",
    "Settings",
]
