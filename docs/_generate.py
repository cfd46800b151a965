"""Write the parts of the reference that follow from the code.

A page marks such a part::

    <!-- generated: properties -->
    ...
    <!-- end of properties -->

``python docs/_generate.py`` writes what stands between; with ``--check`` it changes nothing and
exits 1 if a page is not up to date.
"""

import importlib
import inspect
import json
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Final

import click

from kbackup import config
from kbackup.cli import root
from kbackup.cli.options import GroupedCommand
from kbackup.config import Property
from kbackup.config.foreign_names import (
    NO_EFFECT,
    NO_EFFECT_PREFIXES,
    OWNED,
    REFUSALS,
    REFUSED,
    RENAMED,
    WITHOUT_EFFECT,
)
from kbackup.config.property import ALL
from kbackup.config.settings import shown_value
from kbackup.errors import KbackupError
from kbackup.runs.metrics import LABELS, METRICS, OWN_LABELS

PROPERTIES: Final = [found for found in config.PROPERTIES if found.is_built_in]
"""The properties of this package: plugins of others that are installed here stay out."""

DOCS: Final = Path(__file__).parent
SCHEMA: Final = DOCS.parent / "kbackup" / "cli" / "json_schema.json"

_PART: Final = re.compile(
    r"(<!-- generated: (?P<name>[\w-]+) -->\n).*?(<!-- end of (?P=name) -->)", re.DOTALL
)
_IMPORTED: Final = ("kbackup.kafka",)
"""Modules that have errors of their own, beside `kbackup.errors`."""


def leaves(
    command: click.Command = root, parent: click.Context | None = None, word: str = "kbackup"
) -> Iterator[tuple[click.Context, click.Command]]:
    """Yield each command that does something, with the context that knows its words."""
    context = click.Context(command, parent=parent, info_name=word)
    if not isinstance(command, click.Group):
        yield context, command
        return
    for name in sorted(command.list_commands(context), key=lambda word: word != "run"):
        found = command.get_command(context, name)
        if found is not None:
            yield from leaves(found, context, name)


def errors() -> dict[str, type[KbackupError]]:
    """Return every error by its code."""
    for name in _IMPORTED:
        importlib.import_module(name)
    found: dict[str, type[KbackupError]] = {}

    def walk(kind: type[KbackupError]) -> None:
        found.setdefault(kind.code, kind)
        for sub in kind.__subclasses__():
            walk(sub)

    walk(KbackupError)
    return found


def commands() -> Iterator[str]:
    """Yield the commands: what each does, examples, the names of its options."""
    read = {"--config", "-X"}
    for context, command in leaves():
        path = context.command_path
        yield f"## {path}\n"
        yield _prose(command.help or "")
        usage = " ".join(piece for piece in command.collect_usage_pieces(context) if piece)
        examples = command.examples if isinstance(command, GroupedCommand) else ()
        lines = examples if usage == "[OPTIONS]" else (f"Usage: {path} {usage}", *examples)
        yield "```text\n" + "\n".join(lines) + "\n```\n"
        found = _options(context, command)
        own = [names for names, group in found.items() if not group and names not in read]
        if own:
            yield f"Options of its own: {_names(own)}.\n"


def documented(command: click.Command) -> list[click.Parameter]:
    """Return the parameters of *command*: not hidden ones, nor those of others' plugins."""
    foreign = {found.attribute for found in config.PROPERTIES if not found.is_built_in}
    return [
        each
        for each in command.params
        if each.name not in foreign and not getattr(each, "hidden", False)
    ]


def _options(context: click.Context, command: click.Command) -> dict[str, str]:
    """Return the names of each option, and where it is a property, the property's heading."""
    headings = {found.attribute: found.group for found in PROPERTIES}
    return {
        ", ".join((*each.opts, *each.secondary_opts)): headings.get(each.name or "", "")
        for each in documented(command)
        if isinstance(each, click.Option)
        and each.get_help_record(context) is not None
        and "--help" not in each.opts
    }


def _names(options: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for names in options for name in names.split(", "))


BOTH: Final = re.compile(r"(key|value)(?=[.]converter)")
"""The beginning of the properties that keys and values have alike."""


def _told(found: Property) -> tuple[object, ...]:
    return (BOTH.sub("*", found.name), found.help, repr(found.default), found.commands)


_TIMES: Final = Counter(map(_told, PROPERTIES))


def table_name(found: Property) -> str:
    """Return what the table calls a property: one row is for keys and for values."""
    return BOTH.sub("*", found.name) if _TIMES[_told(found)] > 1 else found.name


def properties() -> Iterator[str]:
    """Yield every property under its heading, in a table."""
    for heading in dict.fromkeys(found.group for found in PROPERTIES):
        yield f"### {heading}\n"
        group = [found for found in PROPERTIES if found.group == heading]
        rows = {table_name(found): found for found in group}
        [(usual, _)] = Counter(found.commands for found in rows.values()).most_common(1)
        yield f"For {_commands(usual)}, unless a row says otherwise.\n"
        yield "|property|type|default||\n|---|---|---|---|"
        for name, found in rows.items():
            cells = (f"`{name}`", _type(found), _default(found), _about(found, usual))
            yield f"|{'|'.join(cell.replace('|', _BAR) for cell in cells)}|"
        yield ""


_BAR: Final = "\\|"


def _commands(names: frozenset[str]) -> str:
    rest, typed = _typed(ALL - names), _typed(names)
    if len(rest) + 2 < len(typed):
        return f"all but {', '.join(sorted(rest))}" if rest else "all commands"
    return ", ".join(sorted(typed))


def _typed(names: frozenset[str]) -> set[str]:
    """Return the commands as they are typed, where one takes more options than its name says."""
    typed = {*names}
    for more, usual, shown in (
        ("against", "verify", "verify --against"),
        ("restore-status", "status", "restore status"),
    ):
        if more in typed:
            typed = typed - {more} | (set() if usual in typed else {shown})
    return typed


def _type(found: Property) -> str:
    return "/".join(f"`{each}`" for each in found.choices) or found.type


def _default(found: Property) -> str:
    usual = repr_of(found.default)
    if found.for_values is None or repr_of(found.for_values) == usual:
        return usual
    return f"{usual}; {repr_of(found.for_values) or 'none'}"


def by_rule(found: Property) -> set[str]:
    """Return the options that follow from the property's name."""
    rule = found.name.replace(".", "-").replace("_", "-")
    return {f"--{rule}", f"--no-{rule}"} if found.is_flag else {f"--{rule}"}


def _about(found: Property, usual: frozenset[str]) -> str:
    """Return what the row says beside name, type and default."""
    told = [_sentence(found.help)]
    names = [each for name in found.option_names for each in name.split("/")]
    if names := [each for each in names if each not in by_rule(found)]:
        told.append(f"Option {', '.join(f'`{name}`' for name in names)} too.")
    if found.is_secret or not found.is_option:
        told.append("No option.")
    if found.other_variables:
        told.append(f"Variable {', '.join(f'`{each}`' for each in found.other_variables)} too.")
    if found.aliases:
        told.append(f"Also {', '.join(f'`{name}`' for name in found.aliases)}.")
    if not found.is_property:
        told.append("Not for files.")
    if found.commands != usual:
        told.append(f"For {_commands(found.commands)}.")
    return " ".join(told)


def refused() -> Iterator[str]:
    """Yield what is refused by name."""
    rows: dict[tuple[str, ...], dict[str, None]] = {}
    for row in [row for row in REFUSALS if row.is_built_in]:
        sides = ", ".join(sorted({"sink", "restore"} & row.commands))
        names = rows.setdefault((sides, row.why, row.do), {})
        names[f"`{BOTH.sub('*', row.name)}`"] = None
    yield "|property|refused by|because|instead|\n|---|---|---|---|"
    for cells, names in rows.items():
        yield f"|{'|'.join((', '.join(names), *cells))}|"
    yield ""


def without_effect() -> Iterator[str]:
    """Yield what is accepted and does nothing."""
    names = [*sorted(NO_EFFECT), *(f"{prefix}*" for prefix in NO_EFFECT_PREFIXES)]
    yield ", ".join(f"`{name}`" for name in names) + ".\n"


def kafka_clients() -> Iterator[str]:
    """Yield how the names of Kafka's Java clients are taken."""
    pairs = ", ".join(f"`{old}` is `{new}`" for old, new in sorted(RENAMED.items()))
    yield f"Passed on under another name: {pairs}.\n"
    yield f"Without effect: {', '.join(f'`{name}`' for name in sorted(WITHOUT_EFFECT))}.\n"
    yield (
        "Refused, because the promises rest on them: "
        + ", ".join(f"`{name}`" for name in sorted(OWNED))
        + ".\n"
    )
    yield "Refused, because librdkafka spells them otherwise:\n"
    for name, (why, do) in REFUSED.items():
        yield f"- `{name}`: {why}. Instead: {do}."
    yield ""


def error_codes() -> Iterator[str]:
    """Yield every error code with its exit code and meaning."""
    yield "| `code` | exit code | meaning |"
    yield "|---|---:|---|"
    for code, kind in sorted(errors().items(), key=lambda item: (item[1].exit_code, item[0])):
        number = "130, 143" if code == "stopped" else kind.exit_code
        yield f"| `{code}` | {number} | {_code_style(_first_line(kind.__doc__ or ''))} |"
    yield ""


def json_lines() -> Iterator[str]:
    """Yield every type of line with its fields."""
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    definitions = schema["$defs"]
    names = [each["$ref"].rpartition("/")[2] for each in schema["then"]["oneOf"]]
    for name in [*names, "record", "past_run", "error"]:
        definition = definitions[name]
        yield f"### {name}\n"
        yield f"{_sentence(definition['description'])}\n"
        required = set(definition.get("required", ()))
        fields = {**definition.get("properties", {})}
        if "$ref" in definition:
            place = definitions[definition["$ref"].rpartition("/")[2]]["properties"]
            fields |= {key: value for key, value in place.items() if key not in fields}
        yield "|field|type||\n|---|---|---|"
        for field, about in fields.items():
            if field not in _EVERYWHERE:
                yield _field(field, about, definitions, is_required=field in required)
        yield ""


_EVERYWHERE: Final = ("type", "v", "run")
"""Fields that the page explains once."""


def transforms() -> Iterator[str]:
    """Yield the transforms: their classes, what each does, its options."""
    yield from _chained("transforms")


def predicates() -> Iterator[str]:
    """Yield the predicates, as `transforms` does."""
    yield from _chained("predicates")


def _chained(extension_point: str) -> Iterator[str]:
    # of the checkout, not of what was installed from it some time ago
    project = tomllib.loads((DOCS.parent / "pyproject.toml").read_text(encoding="utf-8"))
    points = project["project"]["entry-points"][f"kbackup.{extension_point}"].items()
    classes = [
        EntryPoint(name, value, f"kbackup.{extension_point}").load() for name, value in points
    ]
    times = Counter(
        (option.name, option.help) for found in classes for option in found.traits.options
    )
    for found in sorted(classes, key=lambda each: each.traits.class_names):
        (name, *_) = found.traits.class_names
        sides = "".join(f" `${side.title()}`" for side in found.traits.sides)
        about = " ".join((inspect.getdoc(found) or "").split())
        yield f"**`{name}`**{sides}: {about}\n"
        for option in found.traits.options:
            if times[option.name, option.help] <= _OFTEN:
                default = "required" if option.is_required else repr_of(option.default)
                choices = f" `{'`/`'.join(option.choices)}`." if option.choices else ""
                shown = f" ({default})" if default else ""
                yield f"- `{option.name}`{shown}: {_sentence(option.help)}{choices}"
        yield ""
    shared = {
        option.name: option
        for found in classes
        for option in found.traits.options
        if times[option.name, option.help] > _OFTEN
    }
    for option in shared.values():
        takers = [
            f"`{found.traits.class_names[0]}`"
            for found in classes
            if option.name in [each.name for each in found.traits.options]
        ]
        default = repr_of(option.default)
        yield f"Also `{option.name}` ({default}), of {', '.join(takers)}: {option.help}\n"


_OFTEN: Final = 3
"""An option that more transforms have is told once."""


def repr_of(value: Any) -> str:
    """Return a default as one would write it."""
    text = shown_value(value)
    return f"`{text}`" if text else ""


def _field(
    name: str, about: Mapping[str, Any], definitions: Mapping[str, Any], *, is_required: bool
) -> str:
    target = definitions[about["$ref"].rpartition("/")[2]] if "$ref" in about else {}
    told = about.get("description") or target.get("description") or ""
    inner = about.get("items", {}).get("properties") or about.get("properties") or ()
    of = f"Of {', '.join(f'`{key}`' for key in inner)}." if inner else ""
    about_it = " ".join(filter(None, (of, _sentence(told) if told else "")))
    kind = _kind({**target, **about}, definitions)
    return f"|`{name}`{'' if is_required else '?'}|{kind}|{about_it}|"


def _kind(about: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    if "const" in about:
        return f"`{json.dumps(about['const'])}`"
    if "enum" in about:
        return "/".join(f"`{value}`" for value in about["enum"])
    if "anyOf" in about:
        kinds = []
        for each in about["anyOf"]:
            target = definitions[each["$ref"].rpartition("/")[2]] if "$ref" in each else each
            kinds.append(_kind(target, definitions))
        return "/".join(kinds)
    kind = about.get("type", "value")
    return "/".join(kind) if isinstance(kind, list) else str(kind)


def _prose(text: str) -> str:
    paragraphs = re.split(r"\n\s*\n", text.replace("\b", "").strip())
    return "\n\n".join(" ".join(each.split()) for each in paragraphs) + "\n"


def _sentence(text: str) -> str:
    text = " ".join(text.split())
    return text if text.endswith((".", "]", "!", "?")) else f"{text}."


def metrics() -> Iterator[str]:
    """Yield every metric and label."""
    yield "|label|meaning|\n|---|---|"
    for name, meaning in (LABELS | OWN_LABELS).items():
        yield f"|`{name}`|{meaning}{', on every metric' if name in LABELS else ''}|"
    yield "\n|metric|labels of its own|meaning|\n|---|---|---|"
    for metric in METRICS:
        labels = ", ".join(f"`{label}`" for label in metric.own)
        yield f"|`{metric.name}`|{labels}|{metric.help}|"
    yield ""


def _first_line(text: str) -> str:
    return " ".join(text.strip().split("\n\n", 1)[0].split())


def _code_style(text: str) -> str:
    """Turn the double backticks of docstrings into those of Markdown."""
    return text.replace("``", "`").replace("*exit_code*", "the exit code").replace("|", "\\|")


PARTS: Final[dict[str, Callable[[], Iterator[str]]]] = {
    "commands": commands,
    "properties": properties,
    "refused": refused,
    "without-effect": without_effect,
    "kafka-clients": kafka_clients,
    "error-codes": error_codes,
    "json-lines": json_lines,
    "transforms": transforms,
    "predicates": predicates,
    "metrics": metrics,
}


def generated(page: str) -> str:
    """Return the text of a page with its generated parts as they should be."""

    def written(match: re.Match[str]) -> str:
        body = "\n".join(PARTS[match["name"]]())
        return f"{match[1]}\n{body.rstrip()}\n\n{match[3]}"

    return _PART.sub(written, page)


def pages() -> Iterator[Path]:
    """Yield the pages that have generated parts."""
    for path in sorted(DOCS.rglob("*.md")):
        if _PART.search(path.read_text(encoding="utf-8")):
            yield path


def not_installed() -> list[str]:
    """Return the plugins of the checkout that the installed package does not declare.

    Their options would be missing from the pages without a word.
    """
    project = tomllib.loads((DOCS.parent / "pyproject.toml").read_text("utf-8"))["project"]
    return [
        f"{group}: {name}"
        for group, declared in project["entry-points"].items()
        for name in sorted(declared.keys() - {found.name for found in entry_points(group=group)})
    ]


def main() -> int:
    """Write the pages, or check them; return the exit code."""
    if missing := not_installed():
        print(f"not installed: {', '.join(missing)}; run pip install -e . again")  # noqa: T201
        return 1
    stale = []
    for path in pages():
        page = path.read_text(encoding="utf-8")
        wanted = generated(page)
        if wanted != page:
            stale.append(path.name)
            if "--check" not in sys.argv:
                path.write_text(wanted, encoding="utf-8")
    if stale and "--check" in sys.argv:
        print(f"not up to date: {', '.join(stale)}; run python docs/_generate.py")  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
