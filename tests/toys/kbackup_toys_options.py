"""The options of a third party's plugins, in a module that costs nothing to import."""

from typing import Final

from kbackup.options import integer

DIRECTORIES: Final = integer("modulo.directories", "How many directories there are.", 3, ge=1)

OPTIONS: Final = (DIRECTORIES,)
