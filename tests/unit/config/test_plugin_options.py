"""Properties that a plugin declares for itself; the plugin is a third party's."""

import pytest

from kbackup import config, partitioners
from kbackup.errors import ConfigurationError
from kbackup.options import (
    Option,
    boolean,
    duration,
    integer,
    names,
    optional_text,
    text,
    verbatim,
    words,
)
from kbackup.partitioners import Partitioner
from kbackup.testing.partitioners import WHERE, records
from tests.support.configurations import SINK, WHOLE, Write, errors, load
from tests.support.invoked import invoke


def directories(partitioner: Partitioner) -> set[str]:
    """Return the directories that it spreads records over."""
    return set(partitioner.encode(WHERE, records()).to_pylist())


def test_the_options_of_a_chosen_plugin_reach_it() -> None:
    """
    What is given reaches it as a value of its type; what is not has the declared default.
    """
    chosen = {**WHOLE, "partitioner_class": "modulo"}
    loaded = config.load(
        "sink", options=chosen, files=(), environ={}, extra=["modulo.directories=2"]
    )
    usual = load("sink", **chosen)

    assert {"modulo.directories": 2} == loaded.settings.options_of("partitioners")
    assert () == loaded.warnings
    found = partitioners.by_name("modulo", loaded.settings.plugin_options)
    assert {"rest=0", "rest=1"} == directories(found)
    found = partitioners.by_name("modulo", usual.settings.plugin_options)
    assert {"rest=1"} == directories(found)  # every third offset


def test_an_option_is_checked_where_it_was_given(write: Write) -> None:
    """
    The plugin's own check refuses a value, by the name of the property.
    """
    file = SINK + "partitioner.class=Modulo\nmodulo.directories=none\n"

    found = errors("sink", write(file), bootstrap_servers="h:1")

    assert ["modulo.directories"] == list(found)


def test_an_option_of_a_plugin_that_is_not_chosen_has_no_effect() -> None:
    """
    It is accepted with a warning.
    """
    loaded = config.load(
        "sink", options=WHOLE, files=(), environ={}, extra=["modulo.directories=2"]
    )

    assert ["modulo.directories"] == [
        doubt.name for doubt in loaded.warnings if doubt.code == "no_effect"
    ]


@pytest.mark.parametrize(
    ("options", "environ", "extra"),
    [
        pytest.param({"modulo_directories": "2"}, {}, [], id="option"),
        pytest.param({}, {"KBACKUP_MODULO_DIRECTORIES": "2"}, [], id="variable"),
        pytest.param({}, {}, ["modulo.directories=2"], id="-X"),
    ],
)
def test_one_declaration_gives_option_and_variable(
    options: dict[str, str], environ: dict[str, str], extra: list[str]
) -> None:
    """
    A third party's option is given like any other.
    """
    chosen = {**WHOLE, "partitioner_class": "modulo", **options}

    loaded = config.load("sink", options=chosen, files=(), environ=environ, extra=extra)

    assert 2 == loaded.settings.plugin_options["modulo.directories"]
    assert "--modulo-directories" in invoke("sink", "--help").stdout


def test_options_of_a_converter_are_given_for_keys_and_values(write: Write) -> None:
    """
    One declaration gives ``key.converter.schemas.enable`` and that of the value.
    """
    file = SINK.replace("value.converter=", "#").replace("value.converter.", "#") + (
        "store.kafka.keys=true\nkeys.format.class=json\nkey.converter=json\n"
        "key.converter.schemas.enable=false\nvalue.converter=string\n"
        "value.converter.schemas.enable=false\n"
    )

    loaded = load("sink", write(file), bootstrap_servers="h:1")

    assert {"schemas.enable": False} == loaded.settings.key_converter_properties
    assert {} == loaded.settings.value_converter_properties
    [idle] = [doubt.name for doubt in loaded.warnings if doubt.code == "no_effect"]
    assert {"value.converter.schemas.enable"} == {
        name for name in idle.split(", ") if "converter" in name
    }


@pytest.mark.parametrize(
    ("option", "given", "value"),
    [
        pytest.param(integer("n", "", 1, ge=0), " 7 ", 7, id="integer"),
        pytest.param(boolean("b", "", False), "TRUE", True, id="boolean"),
        pytest.param(words("w", "", ("a", "b"), "a", any_case=True), "B", "b", id="words"),
        pytest.param(duration("d", "", 1.0), "500ms", 0.5, id="duration"),
        pytest.param(names("l", ""), " a , b", ("a", "b"), id="list"),
        pytest.param(text("t", "", "x"), " y ", "y", id="text"),
        pytest.param(optional_text("o", ""), "  ", None, id="text that may be absent"),
        pytest.param(verbatim("v", ""), " ; ", " ; ", id="text as it is"),
    ],
)
def test_an_option_has_a_type(option: Option[object], given: str, value: object) -> None:
    """
    Text becomes a value of the type, which stays what it is when it is read again.
    """
    assert value == option.of({option.name: given})
    assert value == option.of({option.name: value})
    assert option.default == option.of({})


@pytest.mark.parametrize(
    ("option", "given"),
    [
        pytest.param(integer("n", "", 1, ge=0), "-1", id="too small"),
        pytest.param(integer("n", "", 1, le=9), "10", id="too large"),
        pytest.param(boolean("b", "", False), "yes", id="neither true nor false"),
        pytest.param(words("w", "", ("a", "b"), "a"), "B", id="another word"),
        pytest.param(duration("d", "", 1.0), "soon", id="no duration"),
    ],
)
def test_what_is_not_of_the_type_is_refused(option: Option[object], given: str) -> None:
    """
    The error says which option, and what was expected.
    """
    with pytest.raises(ConfigurationError, match=rf"^{option.name}={given} .*: expected"):
        option.of({option.name: given})
