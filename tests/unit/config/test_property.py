"""The declarations, all of them."""

from collections import Counter

import pytest

from kbackup import config
from kbackup.config.issues import is_secret
from kbackup.config.property import ALL, Property
from kbackup.config.settings import ALIASES, BY_NAME, GROUPS, OWN, Settings
from kbackup.options import Option

EACH = pytest.mark.parametrize("found", config.PROPERTIES, ids=lambda found: found.name)


def test_every_field_of_a_group_is_declared_once() -> None:
    """A setting that is not declared would have no option, no variable and no documentation."""
    attributes = [
        name for group in GROUPS for name, value in vars(group).items() if isinstance(value, Option)
    ]

    assert attributes == [found.attribute for found in OWN]
    assert set(attributes) <= vars(Settings()).keys()


def test_no_two_properties_share_an_option_or_a_variable() -> None:
    """An option or variable sets one property and no other."""
    options = Counter(
        option
        for found in config.PROPERTIES
        for names in found.option_names
        for option in names.split("/")
    )
    variables = Counter(
        name for found in config.PROPERTIES for name in (found.variable, *found.other_variables)
    )

    assert [] == [name for name, count in (options + variables).items() if count > 1]


def test_no_alias_is_a_name_of_its_own() -> None:
    """An alias leads to one property and is not a property itself."""
    assert set() == ALIASES.keys() & BY_NAME.keys()


@EACH
def test_a_property_says_what_it_is(found: Property) -> None:
    """Help, group and commands are there for every property."""
    assert found.help.endswith(".")
    assert found.group
    assert found.commands
    assert found.commands <= ALL


@EACH
def test_the_option_is_the_name_with_dashes(found: Property) -> None:
    """``a.b.c`` is ``--a-b-c``; a credential has no option, for it would show in ``ps``."""
    option = "--" + found.name.replace(".", "-")
    options = [option for names in found.option_names for option in names.split("/")]

    assert found.is_option == (option in options)
    assert not (found.is_secret and found.is_option)


@EACH
def test_a_secret_is_known_by_its_name(found: Property) -> None:
    """What is declared secret is masked wherever its name turns up."""
    assert found.is_secret == is_secret(found.name)


@EACH
def test_a_default_is_a_value_it_may_have(found: Property) -> None:
    """Writing a default into a file changes nothing."""
    if found.choices:
        assert found.default in found.choices
    assert found.default == found.of({found.name: found.default})
    if found.default is not None:
        assert found.default == found.read(found.default)


def test_flags_can_be_switched_off_where_they_are_on() -> None:
    """Whatever is on by default has an option that switches it off."""
    on = [found for found in config.PROPERTIES if found.is_flag and found.default is True]

    assert [] == [found.name for found in on if "/" not in found.option_names[-1]]
