"""The options of a third party's plugins, in a module that costs nothing to import."""

from typing import Final

from kbackup.options import Unsupported, integer, optional_integer, true

DIRECTORIES: Final = integer("modulo.directories", "How many directories there are.", 3, ge=1)

SHUFFLED: Final = Unsupported("modulo.shuffle", true, "directories follow from offsets alone")

WIDTH: Final = optional_integer("fixed.width", "How long each value is.", ge=1, is_required=True)

OPTIONS: Final = (DIRECTORIES, SHUFFLED)
