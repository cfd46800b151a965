"""The command line.  `main` is what ``kbackup`` runs; a command is imported when it is used.

Owns what a user types and sees: options, screens, lines of JSON, signals, exit codes.  No other
room prints, or imports click or rich.  It never reads or writes a record in Kafka or in a store:
the rooms below do.
"""

import importlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import MappingProxyType
from typing import Any, Final

import click
from click.exceptions import NoArgsIsHelpError

from kbackup.cli import options
from kbackup.cli.options import GroupedCommand
from kbackup.errors import ConfigurationError
from kbackup.spark.worker import keep_little

_COMMANDS: Final = {
    "sink": ("sink", "Copy Kafka topics to S3."),
    "restore": ("restore", "Write backed-up records to Kafka; inspect or verify a backup."),
    "keys": ("sink", "List or change who can decrypt an encrypted backup."),
    "config": ("prepare", "Check a configuration, or show where each value comes from."),
    "doctor": ("prepare", "Check in advance what a run needs."),
    "demo": ("prepare", "Start Kafka and S3, back up a sample, restore and compare it."),
    "plugins": ("prepare", "List the installed plugins, and their packages."),
    "explain": ("explain", "Say what an exit code or an error's code means, and what to do."),
}
"""The module of each command, which names it ``sink_command``, and its line of help."""


class Family(GroupedCommand, click.Group):
    """A command group that suggests its commands when one is mistyped.

    Args:
        default: The command to run when none is given; the help of the group lists the first of
            its options.
        runs_bare: Whether it runs without a single word; else the help is shown.
        aliases: What each old name means now; they are in crontabs, and in no help or suggestion.
    """

    command_class = GroupedCommand

    def __init__(
        self,
        *args: Any,
        default: str | None = None,
        runs_bare: bool = True,
        aliases: Mapping[str, Sequence[str]] = MappingProxyType({}),
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.default, self.runs_bare, self.aliases = default, runs_bare, aliases

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the default command in front of options, unless it is the group's help."""
        if not (args or self.runs_bare):
            raise NoArgsIsHelpError(ctx)
        is_help = args[:1] and args[0] in options.HELP
        if self.default is not None and not is_help and (not args or args[0].startswith("-")):
            args = [self.default, *args]
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return what follows the group's words."""
        return ["COMMAND [OPTIONS]" if self.default is None else "[COMMAND] [OPTIONS]"]

    def format_common(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands, and the options of the default one that are used most."""
        self.format_commands(ctx, formatter)
        meant = self._default_command(ctx)
        if meant is not None:
            most_used = meant.options()[:_OF_DEFAULT]
            options.write_lines(most_used, formatter, f" of {meant.name}")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands, and all options of the default one."""
        self.format_commands(ctx, formatter)
        meant = self._default_command(ctx)
        if meant is not None:
            meant.format_options(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands, one line each."""
        rows = []
        for word, command in self.commands.items():
            arguments = [each for each in command.params if isinstance(each, click.Argument)]
            label = " ".join([word, *(each.make_metavar(ctx) for each in arguments)])
            note = " (the default)" if word == self.default else ""
            rows.append((label, f"{options.first_sentence(command.help or '')}{note}"))
        width = max(len(label) for label, _ in rows)
        with formatter.section(f"Commands of {ctx.info_name}"):
            for label, text in rows:
                formatter.write(f"  {label:<{width}}  {text}\n")

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  (click's signature)
        """Return the commands in the order in which they are declared."""
        return list(self.commands)

    def elsewhere(self, ctx: click.Context, word: str) -> list[str]:
        """Return the commands that *word*, which is none here, names elsewhere."""
        above = ctx.parent
        if above is None or not isinstance(above.command, Family):
            return []
        return above.command.elsewhere(above, word)

    def _default_command(self, ctx: click.Context) -> GroupedCommand | None:
        command = None if self.default is None else self.get_command(ctx, self.default)
        return command if isinstance(command, GroupedCommand) else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or suggest the one that was probably meant."""
        args = [*self.aliases.get(args[0], args[:1]), *args[1:]]
        word = args[0]
        if self.get_command(ctx, word) is None and not word.startswith("-"):
            raise options.UnknownWordError(
                word, self.list_commands(ctx), ctx, self.elsewhere(ctx, word),
                takes_topics=self.default is not None,
            )  # fmt: skip
        return super().resolve_command(ctx, args)


_OF_DEFAULT: Final = 12
"""How many options of its default command the help of a group lists."""
_WORD_WIDTH: Final = 8

_TYPED: Final = "kbackup.typed"
"""Where the context keeps the words of the command line."""


class Root(Family):
    """Imports a command only when it is used, so that ``--help`` and mistakes are quick."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Read the words in front of the command's own."""
        typed = list(args)
        with _explained(typed):
            context = super().make_context(info_name, args, parent, **extra)
        context.meta[_TYPED] = typed
        return context

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was typed."""
        with _explained(ctx.meta[_TYPED]):
            return super().invoke(ctx)

    def elsewhere(self, ctx: click.Context, word: str) -> list[str]:
        """Return the commands of the groups that have this name."""
        groups = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        return [
            f"{ctx.command_path} {name} {each}"
            for name, group in groups.items()
            if isinstance(group, Family)
            for each in group.aliases.get(word, [word])[:1]
            if each in group.commands
        ]

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  (click's signature)
        """Return the commands, most important first."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import and return a command."""
        if cmd_name not in _COMMANDS:
            return None
        module = importlib.import_module(f"kbackup.cli.{_COMMANDS[cmd_name][0]}")
        command: click.Command = getattr(module, f"{cmd_name}_command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the commands without importing them."""
        with formatter.section("Commands"):
            for word, (_, text) in _COMMANDS.items():
                formatter.write(f"  {word:<{_WORD_WIDTH}}  {text}\n")
        formatter.write_paragraph()
        formatter.write("A command's help: kbackup COMMAND --help.  The version: --version\n")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List every command of every group."""
        self.format_commands(ctx, formatter)
        for word in self.list_commands(ctx):
            group = self.get_command(ctx, word)
            if isinstance(group, Family):
                inner = click.Context(group, parent=ctx, info_name=word)
                group.format_commands(inner, formatter)


@contextmanager
def _explained(typed: Sequence[str]) -> Iterator[None]:
    """Report a command line that cannot be understood as every other error is reported."""
    try:
        yield
    except NoArgsIsHelpError:
        raise  # click shows the help
    except click.UsageError as error:
        options.refuse(error, typed, _misplaced(error, typed))


def _misplaced(error: click.UsageError, typed: Sequence[str]) -> ConfigurationError | None:
    """Return what is wrong where an option stands before the command: ``restore -q verify``."""
    parent = None if error.ctx is None else error.ctx.parent
    group = None if parent is None else parent.command
    if parent is None or not isinstance(group, Family) or typed[1][:1] != "-":
        return None
    # the default command was put there, and does not know the options of the one that is meant
    for typed_word in typed[2:]:
        word = group.aliases.get(typed_word, [typed_word])[0]
        command = group.commands.get(word)
        if command is None:
            continue
        if isinstance(error, click.NoSuchOption):
            is_meant = any(error.option_name in each.opts for each in command.params)
        else:
            is_meant = f"({typed_word}" in error.message  # of words that are too many
        if is_meant:
            break
    else:
        return None
    return ConfigurationError(
        f"{parent.command_path} {typed[1]} cannot be run as typed",
        f"the command comes before its options, and {word} stands behind {typed[1]}",
        f"put `{word}` first: {parent.command_path} {word} {typed[1]} ...",
    )


@click.group(
    cls=Root,
    context_settings={"max_content_width": 100},
    examples=(
        "kbackup sink -k broker:9092 -t orders -b my-bucket",
        "kbackup restore -k broker:9092 -t orders -b my-bucket --rename 'copy_of_$0'",
        "kbackup demo",
    ),
)
def root() -> None:
    """Back up Kafka topics to S3 and put them back: full records, exactly once."""


def main() -> None:
    """Run the command line; ends the process with the exit codes of the contract."""
    _fill_in()
    keep_little()
    try:
        root(prog_name="kbackup")
    except OSError as error:  # click's own texts, such as the help; commands report theirs
        with suppress(OSError):
            click.echo(f"error: the output cannot be written: {error.strerror}", err=True)
        sys.exit(1)
    finally:
        for file in (sys.stdout, sys.stderr):
            try:
                file.flush()
            except OSError:  # what is left in its buffer would change the exit code
                with suppress(OSError):
                    os.dup2(os.open(os.devnull, os.O_WRONLY), file.fileno())


def _fill_in() -> None:
    """Open what the parent process has closed: no file or socket may get one of these numbers."""
    # what is written there fails: a run goes on, a command that only shows something reports it
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            number = os.open(os.devnull, os.O_RDONLY)  # the lowest that is free: its own
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115
