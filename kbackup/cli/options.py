"""Make click's options of the declared properties, every ``--help``, and usage errors."""

import difflib
import itertools
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import click
from click.core import ParameterSource

import kbackup
from kbackup import native_build
from kbackup.errors import ConfigurationError, some
from kbackup.options import read_days, read_duration, read_size

if TYPE_CHECKING:
    from kbackup.config import Property

EXIT_CODES: Final = (
    "Exit: 0 done 2 usage 3 skipped 4 refused 5 Kafka 6 S3 7 corrupt 8 locked 9 Spark"
)
"""The exit codes in one line of 80 columns."""

_LISTS: Final = ("list", "partitions")
"""Types whose texts are joined by commas if an option is repeated."""

DEEP: Final = (
    "Open objects too.  list opens the last one of each partition; verify opens every one, on "
    "Spark, and checks its checksums and counts."
)
"""What ``--deep`` means, wherever it is."""

SAMPLE: Final = (
    "Read only a part.  verify: a random share of the objects, such as 5%; drill: the newest of "
    "each topic, such as 10GiB."
)
"""What ``--sample`` means, likewise."""

OLDER_THAN: Final = "Only what is older than this."
"""What ``--older-than`` means, likewise."""

UNDO: Final = "Undo what an earlier run has done."
"""What ``--undo`` means, likewise."""

OUTPUT: Final = ("--json", "-q", "--summary-file")
"""Options of the output that people use."""


def looking(*own: str) -> tuple[str, ...]:
    """Return the options that people use of a command that only looks, among them its *own*."""
    where = ("--topics-exclude", "--partitions", "--region", "--store-url")
    return ("--config", "-t", "-b", *own, *where, *OUTPUT, "--log-file", "-X")


AnyCommand = Callable[..., Any]
T = TypeVar("T")


def _properties() -> "tuple[Property, ...]":
    from kbackup.config import PROPERTIES  # noqa: PLC0415  (it imports every plugin: not for --help)

    return PROPERTIES


def print_version(ctx: click.Context, _option: click.Parameter, wanted: bool) -> None:
    """Print the version and leave: the callback of ``--version``."""
    if wanted and not ctx.resilient_parsing:
        from kbackup.connect import avro_walk  # noqa: PLC0415  (it loads the library)
        from kbackup.kafka import KafkaSettings  # noqa: PLC0415

        client = KafkaSettings("")
        whys = client.way().why, avro_walk.why_not(), client.without_batches()
        missing = [why for why in whys if why]
        how = f"a C library is missing: {missing[0]}" if missing else "with its C libraries"
        commit = f"commit {found}, " if (found := native_build.commit()) else ""
        click.echo(f"kbackup {kbackup.__version__} ({commit}{how})")
        ctx.exit()


def eager(
    name: str, callback: Callable[[click.Context, click.Parameter, bool], None], text: str
) -> click.Option:
    """Return an option that prints something and leaves: it works with every word, unlisted."""
    return click.Option(
        [name], is_flag=True, is_eager=True, expose_value=False, hidden=True, callback=callback,
        help=text,
    )  # fmt: skip


class GroupedOption(click.Option):
    """An option that knows its heading in the help, and its default.

    *stated* is the default as it would be typed, where click does not know it.
    """

    def __init__(
        self, *args: Any, group: str = "Other", stated: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.group = group
        self.stated = self._default_text() if stated is None else stated

    def _default_text(self) -> str:
        if self.is_flag:
            return "on" if self.default is True else "off"
        return str(self.default) if isinstance(self.default, int | str) else ""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return its names and its text with the default."""
        record = super().get_help_record(ctx)
        if record is None:
            return None
        names = _SWITCH.sub(r"--[no-]\1", record[0])
        return names, f"{record[1]} [default: {self.stated}]" if self.stated else record[1]

    def get_help_extra(self, ctx: click.Context) -> Any:
        """Return what click adds to the text, without ranges in signs: who leaves one is told."""
        return {name: said for name, said in super().get_help_extra(ctx).items() if name != "range"}

    @property
    def label(self) -> str:
        """Its names as one line has room for: the short one, the first long one, its value."""
        long = [name for name in self.opts if name.startswith("--")]
        first, off = long[0] if long else "", "".join(self.secondary_opts[:1])
        if off == f"--no-{first[2:]}":
            first = f"--[no-]{first[2:]}"
        elif off:
            first = f"{first}/{off}"
        names = [name for name in self.opts if not name.startswith("--")]
        text = ", ".join([*names, *filter(None, [first])])
        return text if self.is_flag or self.count else f"{text} {self._value}"

    @property
    def _value(self) -> str:
        """What stands for its value."""
        if isinstance(self.type, click.Choice):
            return "|".join(self.type.choices)
        return self.metavar or "TEXT"

    @property
    def line(self) -> str:
        """Its line in ``--help``: names, the first sentence of its text, its default."""
        default = f" [{self.stated}]" if self.stated else ""
        return f"  {self.label:<{_LABEL_WIDTH}}  {first_sentence(self.help or '')}{default}"


_LABEL_WIDTH: Final = 28

_SWITCH: Final = re.compile(r"--(\S+) / --no-\1$")
"""A switch and its opposite, as click has them."""

_SENTENCE_END: Final = re.compile(r"\.\s")


def first_sentence(text: str) -> str:
    """Return the first sentence of *text*, without its full stop."""
    return _SENTENCE_END.split(text.strip(), maxsplit=1)[0].removesuffix(".")


def option(*names: str, group: str, **more: Any) -> Callable[[AnyCommand], AnyCommand]:
    """Decorate a command with an option of its own, under the heading *group* of its help."""
    return click.option(*names, cls=GroupedOption, group=group, **more)


class FileName(click.Path):
    """A file's path; an unset shell variable leaves an empty one, which would be this folder."""

    def __init__(self) -> None:
        super().__init__(path_type=Path, dir_okay=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path, refusing an empty one and a folder."""
        if value == "":
            self.fail("it is empty", param, ctx)
        return super().convert(value, param, ctx)


max_age_option = option(
    "--max-age", group="Safety", metavar="DURATION",
    help="Exit 7 if the newest good run is older than this.",
)  # fmt: skip
"""For each command that reports how past runs ended."""


class GroupedCommand(click.Command):
    """A command whose ``--help`` fits a screen, and whose ``--help-all`` has every option.

    Args:
        common: The options that ``--help`` lists, most used first, each by one of its names;
            where there are none, all.
    """

    def __init__(
        self, *args: Any, examples: Sequence[str] = (), common: Sequence[str] = (), **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.examples, self.common = examples, common
        self.params += [
            eager("--version", print_version, "Print the version and exit."),
            eager("--help-all", _print_all, "Show every option and exit."),
        ]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuse a long option with one dash, which would be read as letters: ``-topics``."""
        long = {name for each in self.params for name in each.opts if name.startswith("--")}
        for word in itertools.takewhile(lambda each: each != "--", args):
            name = word.partition("=")[0]
            if name.startswith("-") and f"-{name}" in long:
                raise click.NoSuchOption(name, possibilities=[f"-{name}"], ctx=ctx)
        return super().parse_args(ctx, args)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write usage, text, examples, the options that people use, exit codes."""
        self._format_head(ctx, formatter)
        self.format_common(ctx, formatter)
        formatter.write_paragraph()
        formatter.write(f"{EXIT_CODES}\n")
        formatter.write(f"All options: {ctx.command_path} --help-all\n")

    def format_all(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write usage, text, examples, all options by group, exit codes."""
        self._format_head(ctx, formatter)
        self.format_options(ctx, formatter)
        formatter.write_paragraph()
        formatter.write(f"{EXIT_CODES}\n      1 other 130 and 143 stopped\n")
        formatter.write("All properties: kbackup config show --all\n")

    def _format_head(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_usage(ctx, formatter)
        self.format_help_text(ctx, formatter)
        if self.examples:
            with formatter.section("Examples"):
                for line in self.examples:
                    formatter.write(f"  {line}\n")

    def options(self) -> list[GroupedOption]:
        """Return the options that people use, most used first."""
        listed = [
            each for each in self.params if isinstance(each, GroupedOption) and not each.hidden
        ]
        if not self.common:
            return listed
        by_name = {name: each for each in listed for name in each.opts}
        return [by_name[name] for name in self.common]

    def format_common(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the options that people use, one line each."""
        write_lines(self.options(), formatter)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options under their headings."""
        rows: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            if isinstance(parameter, click.Argument):  # the usage names it, the text explains it
                continue
            record = parameter.get_help_record(ctx)
            if record is not None:
                rows.setdefault(getattr(parameter, "group", "Other"), []).append(record)
        order = [found.group for found in _properties()]
        for heading in sorted(rows, key=lambda word: order.index(word) if word in order else -1):
            with formatter.section(heading):
                formatter.write_dl(rows[heading], col_max=34)


def write_lines(
    options: Sequence[GroupedOption], formatter: click.HelpFormatter, of: str = ""
) -> None:
    """Write *options*, one line each, under a heading that says which command they are of."""
    if not options:
        return
    with formatter.section(f"Options{of}, with [defaults]"):
        for each in options:
            formatter.write(f"{each.line}\n")


HELP: Final = ("--help", "--help-all")
"""What asks for help: of a group where it comes first, of the command that is meant elsewhere."""


def _print_all(ctx: click.Context, _option: click.Parameter, wanted: bool) -> None:
    command = ctx.command
    if wanted and not ctx.resilient_parsing and isinstance(command, GroupedCommand):
        formatter = ctx.make_formatter()
        command.format_all(ctx, formatter)
        click.echo(formatter.getvalue().rstrip("\n"))
        ctx.exit()


def config_options(*commands: str) -> Callable[[AnyCommand], AnyCommand]:
    """Decorate a command with every option of the properties that one of *commands* uses.

    The values arrive as text: `kbackup.config` checks them, once, with their origin.
    """
    return _options(lambda found: not found.commands.isdisjoint(commands))


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
        wanted = (found for found in reversed(_properties()) if is_wanted(found))
        options = [_option(found.name) for found in wanted if found.is_option]
        vars(function).setdefault("__click_params__", []).extend(options)  # as click's own do
        if has_extra:
            function = option(
                "-X", "extra", group="Other", multiple=True, metavar="NAME=VALUE",
                help="Set any property but a secret.  A secret belongs in a file or a variable.",
            )(function)  # fmt: skip
        if has_files:
            function = option(
                "--config", "files", group="Other", multiple=True, metavar="FILE",
                envvar="KBACKUP_CONFIG",
                help="Configuration: .properties, .json or .yaml.  The last file wins.",
            )(function)  # fmt: skip
        return function

    return decorate


@cache
def _option(name: str) -> GroupedOption:
    """Return the option of a property: one object for all commands, as making it takes time."""
    from kbackup.config.settings import BY_NAME  # noqa: PLC0415

    found = BY_NAME[name]
    kwargs: dict[str, Any] = {"default": None, "stated": _stated(found)}
    if found.is_count:
        kwargs |= {"count": True}
    elif found.is_flag:
        kwargs |= {"is_flag": True}
    else:
        kwargs |= {"type": str, "metavar": _metavar(found)}
        if found.is_repeated or found.type in _LISTS:
            kwargs |= {"multiple": True}
    names = (*found.option_names, found.attribute)
    return GroupedOption(names, group=found.group, help=found.help, **kwargs)


def _metavar(found: "Property") -> str:
    if found.choices:
        return "|".join(found.choices)
    words = {
        "integer": "N",
        "duration": "DURATION",
        "milliseconds": "DURATION",
        "days": "DAYS",
        "moment": "TIME",
        "file": "FILE",
        "HOST:PORT": "LIST",
        "list": "LIST",
        "partitions": "LIST",
        "regular expression": "REGEX",
        "template": "TEMPLATE",
    }
    return words.get(found.type, found.type if found.type.isupper() else "TEXT")


def _stated(found: "Property") -> str:
    """Return the default as one would type it: ``on`` and ``off``, and times with their unit."""
    from kbackup.config.settings import shown_value  # noqa: PLC0415

    if found.is_flag:
        return "on" if found.default else "off"
    if found.is_count:
        return ""
    if found.type == "milliseconds" and found.default > 0:
        units = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
        unit = next(unit for unit, ms in units.items() if found.default % ms == 0)
        return f"{found.default // units[unit]}{unit}"
    return shown_value(found.default)


_GIVEN: Final = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)


def typed(command: click.Command) -> list[str]:
    """Return the options of the command that runs, as they were typed, that *command* takes too.

    A file that the variable names is named too.  Options of the output are left out, and what
    agrees to everything.
    """
    context, taken = click.get_current_context(), {each.name for each in command.params}
    words: list[str] = []
    for each in context.command.params:
        if not isinstance(each, GroupedOption) or each.name is None or each.name not in taken:
            continue
        is_given = context.get_parameter_source(each.name) in _GIVEN
        if is_given and each.group != "Output" and each.name != "yes":
            words += _words(each, context.params[each.name])
    return words


def _words(of: GroupedOption, value: Any) -> list[str]:
    long = [name for name in of.opts if name.startswith("--")]
    name = (long or of.opts)[0]
    if of.is_flag:
        return [name] if value else of.secondary_opts[:1]
    each = value if isinstance(value, tuple) else (value,)
    return [word for one in each for word in (name, str(one))]


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


def agree() -> Callable[[str], bool] | None:
    """Return how to ask a person; None where there is none at a terminal."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None
    return lambda question: click.confirm(question, err=True)


def seconds(option: str, text: str) -> float:
    """Return a duration that a command line gives, in seconds."""
    return _read(option, text, read_duration, "duration")


def size(option: str, text: str) -> int:
    """Return a size that a command line gives, in bytes."""
    return _read(option, text, read_size, "size")


def whole_days(option: str, text: str) -> int:
    """Return the whole days that a command line gives, at least one."""
    found = _read(option, text, read_days, "number of days")
    if not found:
        raise ConfigurationError(f"{option} {text} is too short", "expected at least 1d")
    return found


def _read(option: str, text: str, read: Callable[[str], T], noun: str) -> T:
    try:
        return read(text)
    except ValueError as error:
        shown = text if text.strip() else repr(text)
        raise ConfigurationError(f"{option} {shown} is not a {noun}", str(error)) from error


_SWITCHES: Final = frozenset({"json", "quiet", "summary_file", "log_file"})
"""The output options, readable even if the rest of the line makes no sense."""

_LEAST: Final = re.compile(r"is not in the range x>=(\d+)")
_BETWEEN: Final = re.compile(r"is not in the range (\d+)<=x<=(\d+)")
"""How click says that a number is too small, or too large."""
_EXTRA: Final = re.compile(r"unexpected extra arguments? \((.+)\)")
"""How it says which words are too many."""


class UnknownWordError(click.UsageError):
    """There is no such command."""

    def __init__(
        self,
        word: str,
        known: Iterable[str],
        ctx: click.Context,
        meant: Sequence[str] = (),
        *,
        takes_topics: bool = False,
    ) -> None:
        super().__init__(f"No such command {word!r}.", ctx)
        self.word, self.known, self.meant = word, tuple(known), meant
        self.takes_topics = takes_topics


def refuse(
    error: click.UsageError, typed: Sequence[str], problem: ConfigurationError | None = None
) -> NoReturn:
    """Report what is wrong with the line that was *typed*, and exit with code 2.

    What a *problem* says is known better than click knows it.
    """
    from kbackup.cli import running  # noqa: PLC0415  (not needed for --help)

    path = _path(typed) if error.ctx is None else error.ctx.command_path
    words = path.removeprefix("kbackup ")
    running.refuse(words, _output(typed), problem or explained(error, path))


def _path(typed: Sequence[str]) -> str:
    """Return the words of the command, as far as they can be distinguished from its options."""
    return " ".join(["kbackup", *itertools.takewhile(lambda word: word[:1] != "-", typed[:2])])


def explained(error: click.UsageError, path: str) -> ConfigurationError:
    """Return click's error about a command, typed as *path*, in parts: what, why, what to do."""
    listed = f"{path} --help-all lists what it has"
    match error:
        case UnknownWordError():
            near = difflib.get_close_matches(error.word, (*error.known, "--help"), 1)
            why = f"{path} knows: {', '.join(error.known)}"
            meant = error.meant or [f"{path} {word}" for word in near]
            do = f"did you mean {' or '.join(meant)}?" if meant else f"see {path} --help"
            if not meant and error.takes_topics:
                do = f"if it is a topic: {path} -t {error.word}; else see {path} --help"
            return ConfigurationError(f"{path} has no command {error.word!r}", why, do)
        case click.NoSuchOption():
            near = ["--help"] if error.option_name == "-h" else _near(error)
            why = _used_elsewhere(error.option_name, error.ctx)
            do = f"did you mean {near[0]}?" if near and not why else listed
            return ConfigurationError(f"{path} has no option {error.option_name}", why, do)
        case click.MissingParameter() if error.param is not None:
            name = error.param.make_metavar(error.ctx) if error.ctx else error.param.name
            if isinstance(error.param, click.Option):
                name = f"{error.param.opts[0]} {name}"
            return ConfigurationError(
                f"{path} needs {name}", "none was given", f"see {path} --help"
            )
        case click.BadParameter():
            named = "a value" if error.param is None else "/".join(error.param.opts)
            do = f"correct it; see {path} --help"
            why = _sentence(error.message).replace("a valid integer range", "a whole number")
            why = _LEAST.sub(r"is less than \1", why)
            why = _BETWEEN.sub(r"is not between \1 and \2", why)
            return ConfigurationError(f"{path} cannot take {named}", why, do)
        case _:
            said, do = _sentence(error.format_message()), f"see {path} --help"
            extra = _EXTRA.search(said)
            if extra and error.ctx and any("-t" in each.opts for each in error.ctx.command.params):
                are = "it is a topic" if " " not in extra[1] else "they are topics"
                do = f"if {are}: {path} -t {extra[1].replace(' ', ',')}; else {do}"
            return ConfigurationError(f"{path} cannot be run as typed", said, do)


def _near(error: click.NoSuchOption) -> list[str]:
    """Return what click finds near; the dashes, which all options have, make nothing near."""
    word = error.option_name.lstrip("-")
    by_word = {found.lstrip("-"): found for found in error.possibilities or ()}
    return [by_word[near] for near in difflib.get_close_matches(word, by_word, 1)]


def _used_elsewhere(option: str, ctx: click.Context | None) -> str:
    """Return where an option is one that this command does not have; empty where it is none."""
    for found in _properties():
        if found.is_property and any(option in name.split("/") for name in found.option_names):
            return f"{found.name} has no effect there; it may stay in a configuration file"
    commands = () if ctx is None else _commands(ctx.find_root())
    having = [path for path, each in commands if any(option in of.opts for of in each.params)]
    if not having:
        return ""
    return f"it is an option of {some(having, 3) if having[2:] else ' and '.join(having)}"


def _commands(above: click.Context) -> Iterator[tuple[str, click.Command]]:
    """Yield each command, with the words that call it."""
    if not isinstance(above.command, click.Group):
        yield above.command_path, above.command
        return
    for word in above.command.list_commands(above):
        if (command := above.command.get_command(above, word)) is not None:
            yield from _commands(click.Context(command, parent=above, info_name=word))


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
