"""A command line that cannot be understood: reported in three parts, in the requested form."""

import difflib
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NoReturn

import click

from kbackup.config import PROPERTIES
from kbackup.errors import ConfigurationError

_SWITCHES: Final = frozenset({"json_", "quiet", "summary_file", "log_file"})
"""The output options, readable even if the rest of the line makes no sense."""

_RANGE: Final = re.compile(r"is not in the range x>=(\d+)")
"""How click says that a number is too small."""


class UnknownWordError(click.UsageError):
    """There is no such command."""

    def __init__(self, word: str, known: Iterable[str], ctx: click.Context) -> None:
        super().__init__(f"No such command {word!r}.", ctx)
        self.word, self.known = word, tuple(known)


def refuse(error: click.UsageError, typed: Sequence[str]) -> NoReturn:
    """Report what is wrong with the line that was *typed*, and exit with code 2."""
    from kbackup.cli import running  # noqa: PLC0415  (not needed for --help)

    path = _path(typed) if error.ctx is None else error.ctx.command_path
    running.refuse(path.removeprefix("kbackup "), _output(typed), explained(error, path))


def _path(typed: Sequence[str]) -> str:
    """Return the words of the command, as far as they can be distinguished from its options."""
    return " ".join(["kbackup", *itertools.takewhile(lambda word: word[:1] != "-", typed[:2])])


def explained(error: click.UsageError, path: str) -> ConfigurationError:
    """Return click's error in our three parts: what, why, what to do.

    Args:
        error: What click says.
        path: The command as it is typed, such as ``kbackup sink run``.
    """
    listed = f"{path} --help lists what it has"
    match error:
        case UnknownWordError():
            near = difflib.get_close_matches(error.word, error.known, 1)
            why = f"{path} knows: {', '.join(error.known)}"
            do = f"did you mean {path} {near[0]}?" if near else listed
            return ConfigurationError(f"{path} has no command {error.word!r}", why, do)
        case click.NoSuchOption():
            near = error.possibilities or []
            do = f"did you mean {near[0]}?" if near else listed
            what = f"{path} has no option {error.option_name}"
            return ConfigurationError(what, _used_elsewhere(error.option_name), do)
        case click.MissingParameter() if error.param is not None:
            name = error.param.make_metavar(error.ctx) if error.ctx else error.param.name
            return ConfigurationError(
                f"{path} needs {name}", "none was given", f"see {path} --help"
            )
        case click.BadParameter():
            named = "a value" if error.param is None else "/".join(error.param.opts)
            do = f"correct it; see {path} --help"
            why = _RANGE.sub(r"is less than \1", _sentence(error.message))
            return ConfigurationError(f"{path} cannot take {named}", why, do)
        case _:
            said = _sentence(error.format_message())
            return ConfigurationError(f"{path} cannot be run as typed", said, f"see {path} --help")


def _used_elsewhere(option: str) -> str:
    """Return which property an option is that this command does not use; empty where it is none."""
    for found in PROPERTIES:
        if found.is_property and any(option in name.split("/") for name in found.option_names):
            return f"{found.name} has no effect there; it may stay in a configuration file"
    return ""


def _sentence(text: str) -> str:
    return text[:1].lower() + text[1:].rstrip(".")


def _output(typed: Sequence[str]) -> Mapping[str, Any]:
    """Return what the line says about its output; all else in it is passed over."""
    wanted = [found for found in PROPERTIES if found.attribute in _SWITCHES]
    reader = click.Command(
        "kbackup",
        params=[
            click.Option([*found.option_names, found.attribute], is_flag=found.is_flag)
            for found in wanted
        ],
        add_help_option=False,
    )
    context = reader.make_context(
        "kbackup", [word for word in typed if word != "--"], resilient_parsing=True,
        ignore_unknown_options=True, allow_extra_args=True,
    )  # fmt: skip
    return {name: value for name, value in context.params.items() if value}
