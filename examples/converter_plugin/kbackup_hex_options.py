"""The options of `HexConverter`, in a module that is cheap to import."""

from kbackup.options import boolean

UPPER = boolean("upper", "Write hexadecimal digits in upper case: 00FF.", False)

OPTIONS = (UPPER,)
