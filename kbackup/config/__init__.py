"""Settings: read from options, variables and files, checked once, then frozen.

One declaration of a property (`PROPERTIES`) gives its option ``--a-b-c``, its variable
``KBACKUP_A_B_C``, its name ``a.b.c`` in files, and its documentation.  `loading.load` gives a
command its `Settings`; `loading.check` returns every error and warning about a file.  Nothing
below checks again, and a run imports nothing that loads.
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
