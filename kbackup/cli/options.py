"""From the declared properties to click's options, every ``--help``, and usage errors."""

import difflib
import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

import kbackup
from kbackup import native_build
from kbackup.errors import ConfigurationError
from kbackup.options import read_duration

if TYPE_CHECKING:
    from kbackup.config import Property

EXIT_CODES: Final = (
    "Exit codes: 0 done  2 usage  3 skipped  4 refused  5 Kafka  6 S3  7 corrupt  8 locked  "
    "9 Spark  1 other  130/143 stopped"
)

_FIRST: Final = ("Kafka", "S3", "Layout", "Rotation", "Restore", "Spark", "Safety", "Output")

_LISTS: Final = ("list", "partitions")
"""Types whose texts are joined by commas if an option is repeated."""

DEEP: Final = (
    "Open objects too: topics opens the last one of each partition; verify opens every one, on "
    "Spark, and checks its checksums and counts."
)
"""What ``--deep`` means, wherever it is."""

AnyCommand = Callable[..., Any]


def _properties() -> "tuple[Property, ...]":
    from kbackup.config import PROPERTIES  # noqa: PLC0415  (it imports every plugin: not for --help)

    return PROPERTIES


def print_version(ctx: click.Context, _option: click.Parameter, wanted: bool) -> None:
    """Print the version and leave: the callback of ``--version``."""
    if wanted and not ctx.resilient_parsing:
        from kbackup.connect import native  # noqa: PLC0415  (it loads the library)
        from kbackup.kafka import KafkaSettings  # noqa: PLC0415

        missing = [why for why in (KafkaSettings("").way().why, native.why_not()) if why]
        how = f"a C library is missing: {missing[0]}" if missing else "with its C libraries"
        commit = f"commit {found}, " if (found := native_build.commit()) else ""
        click.echo(f"kbackup {kbackup.__version__} ({commit}{how})")
        ctx.exit()


def version_option(*, hidden: bool = True) -> click.Option:
    """Return ``--version``, which works with every word and is listed once."""
    return click.Option(
        ["--version"], is_flag=True, is_eager=True, expose_value=False, hidden=hidden,
        callback=print_version, help="Print the version and exit.",
    )  # fmt: skip


class GroupedOption(click.Option):
    """An option that knows its heading in the help."""

    def __init__(self, *args: Any, group: str = "Other", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.group = group


def option(*names: str, group: str, **more: Any) -> Callable[[AnyCommand], AnyCommand]:
    """Decorate a command with an option of its own, under the heading *group* of its help."""
    return click.option(*names, cls=GroupedOption, group=group, **more)


max_age_option = option(
    "--max-age", group="Safety", metavar="TIME",
    help="Exit 7 when the newest good run is older than this, such as 1h.",
)  # fmt: skip
"""For each command that reports how past runs ended."""


class GroupedCommand(click.Command):
    """A command whose help has examples, options under headings, and the exit codes.

    Args:
        examples: Lines that can be pasted.
        siblings: Of a command that is meant where no word is given: all words that may stand in
            its place, for the usage line.
    """

    def __init__(
        self, *args: Any, examples: Sequence[str] = (), siblings: str = "", **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.examples, self.siblings = examples, siblings
        self.params.append(version_option())

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Return the pieces of the usage line."""
        return [*filter(None, [self.siblings]), *super().collect_usage_pieces(ctx)]

    def usage_path(self, ctx: click.Context) -> str:
        """Return the words in front of the usage line, without a word that need not be typed."""
        if self.siblings and ctx.parent is not None:
            return ctx.parent.command_path
        return ctx.command_path

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the usage line."""
        formatter.write_usage(self.usage_path(ctx), " ".join(self.collect_usage_pieces(ctx)))

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write usage, text, examples, options, exit codes."""
        self.format_usage(ctx, formatter)
        self.format_help_text(ctx, formatter)
        if self.examples:
            with formatter.section("Examples"):
                for line in self.examples:
                    formatter.write(f"    {line}\n")
        self.format_options(ctx, formatter)
        formatter.write_paragraph()
        formatter.write_text(EXIT_CODES)
        formatter.write_text("All properties: kbackup config show --all")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options under their headings."""
        rows: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                rows.setdefault(getattr(parameter, "group", "Other"), []).append(record)
        for heading in sorted(rows, key=_rank):
            with formatter.section(heading):
                formatter.write_dl(rows[heading], col_max=34)


def _rank(heading: str) -> int:
    return _FIRST.index(heading) if heading in _FIRST else len(_FIRST)


def config_options(command: str) -> Callable[[AnyCommand], AnyCommand]:
    """Decorate a command with every option of the properties that *command* uses.

    The values arrive as text: `kbackup.config` checks them, once, with their origin.
    """
    return _options(lambda found: command in found.commands)


def all_options(command: str) -> Callable[[AnyCommand], AnyCommand]:
    """Decorate a command that judges others' configuration with the options of all properties.

    So any ``kbackup sink ...`` or ``kbackup restore ...`` can be looked at as it was typed.
    """
    return _options(lambda found: found.is_property or command in found.commands)


def output_options(*, has_files: bool) -> Callable[[AnyCommand], AnyCommand]:
    """Decorate a command that takes nothing but files, or nothing, with options of its output."""
    return _options(
        lambda found: found.group == "Output" and "config" in found.commands,
        has_extra=False,
        has_files=has_files,
    )


def _options(
    is_wanted: "Callable[[Property], bool]", *, has_extra: bool = True, has_files: bool = True
) -> Callable[[AnyCommand], AnyCommand]:
    def decorate(function: AnyCommand) -> AnyCommand:
        for found in reversed(_properties()):
            if is_wanted(found) and found.is_option:
                function = _option(found)(function)
        if has_extra:
            function = option(
                "-X", "extra", group="Other", multiple=True, metavar="NAME=VALUE",
                help="Set any property but a secret, which belongs in a file or a variable.",
            )(function)  # fmt: skip
        if has_files:
            function = option(
                "--config", "files", group="Other", multiple=True, metavar="FILE",
                envvar="KBACKUP_CONFIG",
                help="Configuration: .properties, .json or .yaml; the last file wins.",
            )(function)  # fmt: skip
        return function

    return decorate


def _option(found: "Property") -> Callable[[AnyCommand], AnyCommand]:
    kwargs: dict[str, Any] = {"default": None}
    if found.is_count:
        kwargs |= {"count": True}
    elif found.is_flag:
        kwargs |= {"is_flag": True}
    else:
        kwargs |= {"type": str, "metavar": _metavar(found)}
        if found.is_repeated or found.type in _LISTS:
            kwargs |= {"multiple": True}
    names = (*found.option_names, found.attribute)
    return option(*names, group=found.group, help=_help(found), **kwargs)


def _metavar(found: "Property") -> str:
    if found.choices:
        return "|".join(found.choices)
    words = {
        "integer": "N",
        "duration": "TIME",
        "milliseconds": "TIME",
        "moment": "TIME",
        "list": "LIST",
    }
    return words.get(found.type, "TEXT")


def _help(found: "Property") -> str:
    if found.is_flag or found.default in (None, "", (), {}) or found.is_count:
        return found.help
    shown = f"{found.default:g}s" if found.type == "duration" else found.default
    return f"{found.help} [default: {shown}]"


def given(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was typed, by the attribute of `Settings`.

    A list's option may be repeated: all that is named is taken, not what is named last.
    """
    properties = {found.attribute: found for found in _properties()}
    return {
        name: value if properties[name].is_repeated or isinstance(value, str) else _joined(value)
        for name, value in parameters.items()
        if name in properties and value is not None and value != ()
    }


def _joined(value: Any) -> Any:
    return ",".join(value) if isinstance(value, tuple) else value


def seconds(option: str, text: str) -> float:
    """Return a duration that a command line gives, in seconds.

    Raises:
        ConfigurationError: If it is none, naming *option*.
    """
    try:
        return read_duration(text)
    except ValueError as error:
        raise ConfigurationError(f"{option} {text} is not a duration", str(error)) from error


_SWITCHES: Final = frozenset({"json", "quiet", "summary_file", "log_file"})
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
    for found in _properties():
        if found.is_property and any(option in name.split("/") for name in found.option_names):
            return f"{found.name} has no effect there; it may stay in a configuration file"
    return ""


def _sentence(text: str) -> str:
    return text[:1].lower() + text[1:].rstrip(".")


def _output(typed: Sequence[str]) -> Mapping[str, Any]:
    """Return what the line says about its output; all else in it is passed over."""
    wanted = [found for found in _properties() if found.attribute in _SWITCHES]
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
