"""Each property can be given as an option, a variable and a property of a file."""

from typing import Any

import pytest

from kbackup import plugins
from kbackup.config import PROPERTIES, Property
from kbackup.config.issues import is_secret
from kbackup.config.settings import BY_NAME
from tests.support.invoked import invoke

TIME = ["--partitioner", "time", "--timezone", "UTC"]
TIME_OPTIONS = {"locale": "en", "path.format": "yyyy", "partition.duration.ms": "3600000"}
KEYS = ["-f", "json", "--store-kafka-keys", "--keys-format-class", "json"]

IN_ITS_PLACE: dict[str, list[str]] = {
    "keys.format.class": ["-f", "json", "--store-kafka-keys"],
    "headers.format.class": ["-f", "json", "--store-kafka-headers"],
    "key.converter": ["-f", "json", "--store-kafka-keys", "--keys-format-class", "json"],
    "value.converter": ["-f", "json"],
    "store.kafka.keys": ["-f", "json", "--keys-format-class", "json"],
    "store.kafka.headers": ["-f", "json", "--headers-format-class", "json"],
    "behavior.on.null.values": ["-f", "json"],
    "format.class": ["--view", "value"],
    "s3.compression.type": ["-f", "json"],
    "rename.regex": ["--rename", "x"],
    "follow.groups": ["--follow"],
    "rotate.schedule.interval.ms": ["--timezone", "UTC"],
    "partition.field.name": ["--partitioner", "field"],
    "timestamp.field": ["--timestamp-extractor", "field"],
    "object.name.template": ["-f", "block_gzip"],
    "mode": ["--topic-regex-list", "a:b"],
    "topic.regex.list": ["--mode", "GENERIC"],
    "record.fields": ["--mode", "GENERIC", "--topic-regex-list", "a:b"],
    "file.metadata.headers.enable": ["--mode", "GENERIC", "--topic-regex-list", "a:b"],
}
for given in TIME_OPTIONS:
    others = [(f"--{at.replace('.', '-')}", text) for at, text in TIME_OPTIONS.items()]
    IN_ITS_PLACE[given] = TIME + [
        word for pair in others for word in pair if pair[0] != f"--{given.replace('.', '-')}"
    ]
for each in PROPERTIES:
    if each.plugins and each.plugins[0][0] == "converters":
        converter, plugin = each.name.partition(".converter.")[0] + "-converter", each.plugins[0][1]
        IN_ITS_PLACE[each.name] = [*KEYS, f"--{converter}", plugin]
        needed = [f"{converter.replace('-', '.')}.{option.name}" for option in plugins.options(
            "converters", plugin) if option.is_required]  # fmt: skip
        for name in set(needed) - {each.name}:
            IN_ITS_PLACE[each.name] += ["-X", f"{name}={BY_NAME[name].example}"]
IN_ITS_PLACE |= {
    name: ["-f", "bytes"] for name in ("format.bytearray.extension", "format.bytearray.separator")
}
"""What else must be given for a property to have an effect."""

AUTH = "converter.basic.auth"
SECRETS_BESIDE = {
    f"{part}.{AUTH}.credentials.source": (f"{part}.{AUTH}.user.info",) for part in ("key", "value")
}
"""What else must be given by a variable, since it is secret."""

SAMPLES = {
    "key.converter.basic.auth.user.info": "ann:secret",
    "value.converter.basic.auth.user.info": "ann:secret",
    "key.converter.key.subject.name.strategy": "RecordNameStrategy",
    "key.converter.value.subject.name.strategy": "RecordNameStrategy",
    "value.converter.key.subject.name.strategy": "RecordNameStrategy",
    "value.converter.value.subject.name.strategy": "RecordNameStrategy",
    "key.converter.schema.registry.ssl.keystore.type": "pem",
    "key.converter.schema.registry.ssl.truststore.type": "pem",
    "value.converter.schema.registry.ssl.keystore.type": "pem",
    "value.converter.schema.registry.ssl.truststore.type": "pem",
    "directory.delim": "|",
    "file.delim": "|",
    "topics.dir": "lake",
    "format.bytearray.extension": ".raw",
    "key.converter.converter.encoding": "utf8",
    "value.converter.converter.encoding": "utf8",
    "partitioner.class": "default",
    "key.converter": "json",
    "value.converter": "string",
    "filename.offset.zero.pad.width": "4",
    "auto.offset.reset": "latest",
    "master": "local[1]",
    "flush.size": "7",
    "s3.part.size": "6000000",
    "s3.sse.customer.key": "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=",
    "s3.compression.level": "3",
}

PLAIN = [found for found in PROPERTIES if found.is_property and found.is_built_in]


def sample(found: Property) -> str:
    """Return a value that is not the default."""
    if found.is_flag:
        return "false" if found.default else "true"
    if found.name in SAMPLES:
        return SAMPLES[found.name]
    if found.choices:
        return next(choice for choice in found.choices if choice != found.default)
    return found.example or ("7" if found.type in ("integer", "milliseconds") else "any")


def origin(name: str, *words: str, **environ: str) -> Any:
    """Return where ``config show`` says that *name* is from."""
    shown = invoke("config", "show", "--json", *IN_ITS_PLACE.get(name, ()), *words, **environ)
    assert 0 == shown.code, shown.stderr
    return next(row["origin"] for row in shown.of("setting") if row["name"] == name)


@pytest.mark.parametrize("found", PLAIN, ids=lambda found: found.name)
def test_each_property_is_reachable_as_option_variable_and_property(found: Property) -> None:
    """Property ``a.b`` is ``--a-b`` and ``KBACKUP_A_B``; the option wins, no secret has one."""
    value = sample(found)
    needs = (*found.needs, *SECRETS_BESIDE.get(found.name, ()))
    environ = {
        found.variable: value,
        **{BY_NAME[name].variable: sample(BY_NAME[name]) for name in needs},
    }

    assert f"env {found.variable}" == origin(found.name, **environ)
    for other in found.other_variables:
        spelled = {name: text for name, text in environ.items() if name != found.variable}
        assert f"env {other}" == origin(found.name, **spelled, **{other: value})
        assert f"env {found.variable}" == origin(found.name, **environ, **{other: value})
    if is_secret(found.name):
        refused = invoke("config", "show", "-X", f"{found.name}={value}")
        assert (2, 0) == (refused.code, len(found.option_names))
        return
    assert "option" == origin(found.name, "-X", f"{found.name}={value}", **environ)
    for name in found.option_names:
        on, _, off = name.partition("/")
        typed = [on, value] if not found.is_flag else [on if value == "true" else off]
        assert "option" == origin(found.name, *typed, **environ)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--content", "value"], "value"),
        (["--content", "VALUE"], "value"),
        (["--view", "value", "--content", "record"], "record"),
        (["--content", "record", "--view", "value"], "value"),
    ],
)
def test_of_two_spellings_of_an_option_the_last_counts(words: list[str], expected: str) -> None:
    """``--content`` is ``--view``: of the same property, with the same values."""
    shown = invoke("config", "show", "--json", *words)

    rows = {row["name"]: (row["value"], row["origin"]) for row in shown.of("setting")}
    assert (expected, "option") == rows["view"]


SWITCHED_OFF = [
    found for found in PLAIN if found.is_flag and found.is_option and "/" in found.option_names[-1]
]


@pytest.mark.parametrize("found", SWITCHED_OFF, ids=lambda found: found.name)
def test_an_option_that_switches_off_counts(found: Property) -> None:
    """A flag that is set to false is not the same as one that is not set."""
    off = found.option_names[-1].partition("/")[2]
    words = [*IN_ITS_PLACE.get(found.name, ()), off]
    shown = invoke("config", "show", "--json", *words, **{found.variable: "true"})

    rows = {row["name"]: (row["value"], row["origin"]) for row in shown.of("setting")}
    assert ("false", "option") == rows[found.name]
