"""The published schema of what ``--json`` prints."""

from typing import Final

import jsonschema

from kbackup.cli.output import schema

LINES: Final = jsonschema.Draft202012Validator(schema())
"""One for all: ``jsonschema.validate`` checks the schema itself for each line, a quarter second."""
