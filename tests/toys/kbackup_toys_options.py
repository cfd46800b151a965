"""The options of a third party's plugins, in a module that costs nothing to import."""

from typing import Final

from kbackup.options import Unsupported, integer, true

DIRECTORIES: Final = integer("modulo.directories", "How many directories there are.", 3, ge=1)

SHUFFLED: Final = Unsupported("modulo.shuffle", true, "directories follow from offsets alone")

OPTIONS: Final = (DIRECTORIES, SHUFFLED)
