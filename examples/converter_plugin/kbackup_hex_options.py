"""The options of `HexConverter`, in a module that costs nothing to import."""

from kbackup.options import boolean

UPPER = boolean("upper", "Write hexadecimal digits as capitals: 00FF.", False)

OPTIONS = (UPPER,)
