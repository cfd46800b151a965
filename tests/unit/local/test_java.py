"""Which Java is used, and what is said about those that are not."""

import logging
import os
import shlex
import subprocess
from pathlib import Path

import pytest

from kbackup.errors import JavaNotFoundError
from kbackup.local import java as module
from kbackup.local.java import find_java, proxy_options, trust_store_options


def fake_java(home: Path, version: str, *, is_slim: bool = False) -> Path:
    """Make a home whose ``java`` says *version*, and if slim lacks the vector module."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    refusal = 'case "$*" in *jdk.incubator.vector*) echo "no such module" >&2; exit 1;; esac'
    program.write_text(
        f"#!/bin/sh\n{refusal if is_slim else ':'}\n"
        f'printf "    java.home = %s\\n" {shlex.quote(str(home))} >&2\n'
        f'echo "    java.version = {version}" >&2\n'
        'printf "%s\\n" "$@"\n'
    )
    program.chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No Java of the machine's is in sight, and nothing is written to the user's cache."""
    monkeypatch.setenv("KBACKUP_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", "/nowhere")
    for name in ("JAVA_HOME", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "HTTPS_PROXY", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(module, "find_spec", lambda _: None)


def test_java_home_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Java that was asked for is the one used."""
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "asked", "17.0.1")))
    monkeypatch.setenv("PATH", str(fake_java(tmp_path / "other", "21") / "bin"))

    found = find_java()

    assert (tmp_path / "asked", "17.0.1", "JAVA_HOME", ()) == (
        found.home,
        found.version,
        found.origin,
        found.passed_over,
    )


@pytest.mark.parametrize(
    ("version", "why"),
    [
        pytest.param("1.8.0_402", "is Java 1.8.0_402", id="old numbering"),
        pytest.param("11.0.2", "is Java 11.0.2", id="too old"),
        pytest.param(None, "does not exist", id="no such directory"),
    ],
)
def test_a_wrong_java_home_is_named_and_passed_over(
    version: str | None,
    why: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An unusable JAVA_HOME is reported, and the run continues with the next Java."""
    if version is not None:
        fake_java(tmp_path / "wrong", version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "wrong"))
    monkeypatch.setenv("PATH", str(fake_java(tmp_path / "right", "17.0.1") / "bin"))

    found = find_java()

    sentence = f"JAVA_HOME ({tmp_path}/wrong/bin/java) {why}"
    assert (tmp_path / "right", "PATH", (sentence,)) == (
        found.home,
        found.origin,
        found.passed_over,
    )
    assert [(logging.WARNING, f"{sentence}; looking further")] == [
        (record.levelno, record.getMessage()) for record in caplog.records
    ]


def test_a_link_on_the_path_leads_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the PATH holds a link to Java, as Debian's does, its real home is found."""
    home = fake_java(tmp_path / "jvm", "25")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "java").symlink_to(home / "bin" / "java")
    monkeypatch.setenv("PATH", str(tmp_path / "links"))

    assert home == find_java().home


def test_a_switchers_script_is_seen_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the PATH holds a version switcher's script, the Java it picks is used."""
    home = fake_java(tmp_path / "jvm", "21.0.2")
    (tmp_path / "shims").mkdir()
    shim = tmp_path / "shims" / "java"
    shim.write_text(f'#!/bin/sh\nexec {home}/bin/java "$@"\n')
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "shims"))

    assert home == find_java().home


def test_a_slim_java_is_spared_the_module_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Java that lacks what Spark asks for starts anyway; all else is passed on unchanged."""
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "it's slim", "25", is_slim=True)))

    found = find_java()
    arguments = ["-cp", "a b:*", "--add-modules=jdk.incubator.vector", "", "it's $HOME"]
    done = subprocess.run(
        [found.executable, *arguments], capture_output=True, text=True, check=True
    )

    assert tmp_path / "it's slim" != found.home
    assert done.stdout.splitlines() == ["-cp", "a b:*", "", "it's $HOME"]


def described_java(home: Path, release: str) -> Path:
    """Make a home with a description, whose ``java`` says nothing."""
    program = fake_java(home, "1") / "bin" / "java"
    program.write_text("#!/bin/sh\nexit 1\n")
    (home / "release").write_text(release)
    return home


@pytest.mark.parametrize(
    ("modules", "is_whole"), [("java.base jdk.incubator.vector", True), ("java.base", False)]
)
def test_a_java_that_is_described_is_not_started(
    modules: str, is_whole: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file beside it says version and modules, which saves a start in every run."""
    release = f'IMPLEMENTOR="Somebody"\nJAVA_VERSION="17.0.9"\nMODULES="{modules}"\n'
    monkeypatch.setenv("JAVA_HOME", str(described_java(tmp_path / "described", release)))

    found = find_java()

    assert "17.0.9" == found.version
    assert is_whole == (tmp_path / "described" == found.home)


@pytest.mark.parametrize(
    ("release", "why"),
    [
        pytest.param('JAVA_VERSION="11.0.2"\nMODULES="java.base"\n', "is Java 11.0.2", id="old"),
        pytest.param('JAVA_VERSION="17.0.9"\n', "does not run", id="half a description"),
        pytest.param("", "does not run", id="an empty one"),
    ],
)
def test_a_description_is_no_excuse(
    release: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An old Java is passed over by what is written, and what is not all there is run after all."""
    monkeypatch.setenv("JAVA_HOME", str(described_java(tmp_path / "described", release)))

    with pytest.raises(JavaNotFoundError, match=why):
        find_java()


def test_a_launcher_is_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that inherits JAVA_HOME from us uses the same launcher, not one of its own."""
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "slim", "25", is_slim=True)))
    first = find_java()
    monkeypatch.setenv("JAVA_HOME", str(first.home))

    assert first == find_java()


def test_a_launcher_is_found_in_a_cache_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An image is built once and read-only afterwards: what is there is not written again."""
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "slim", "25", is_slim=True)))
    first = find_java()
    monkeypatch.setattr(os, "access", lambda *_: False)

    assert first.home == module._launcher(tmp_path / "slim")


def test_without_any_java_the_error_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a usable Java one error names each that was tried, and how to get one."""
    monkeypatch.setenv("JAVA_HOME", "/nowhere/java")
    monkeypatch.setenv("PATH", str(fake_java(tmp_path / "old", "11.0.2") / "bin"))

    with pytest.raises(JavaNotFoundError) as caught:
        find_java()

    assert caught.value.exit_code == 9
    assert "JAVA_HOME (/nowhere/java/bin/java) does not exist" in caught.value.why
    assert f"PATH ({tmp_path}/old/bin/java) is Java 11.0.2" in caught.value.why
    assert ".[java]" in caught.value.do


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(None, id="none"),
        pytest.param(b"", id="empty"),
        pytest.param(
            b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", id="broken"
        ),
    ],
)
def test_a_bundle_without_certificates_is_told_of(
    content: bytes | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Java keeps its own authorities, and a bundle that cannot be used is named."""
    if content is not None:
        (tmp_path / "bundle.pem").write_bytes(content)
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "bundle.pem"))

    assert [] == trust_store_options()
    told = f"{tmp_path}/bundle.pem: no certificate in it" in caplog.text
    assert (content is not None) == told


@pytest.mark.parametrize(
    ("proxy", "expected"),
    [
        pytest.param(
            "http://proxy.example:3128",
            ["-Dhttps.proxyHost=proxy.example", "-Dhttps.proxyPort=3128"],
            id="host and port",
        ),
        pytest.param(
            "http://me:secret@proxy.example",
            ["-Dhttps.proxyHost=proxy.example", "-Dhttps.proxyPort=80"],
            id="a password stays out of the arguments",
        ),
        pytest.param("", [], id="none"),
    ],
)
def test_java_is_told_of_the_proxy(
    proxy: str, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proxy that Python would use is Java's too."""
    monkeypatch.setenv("HTTPS_PROXY", proxy)

    assert expected == proxy_options()


def test_a_user_without_a_home_has_no_class_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a home directory Spark starts without a class archive."""

    def unknown(_uid: int) -> None:
        raise KeyError

    for name in ("HOME", "KBACKUP_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", unknown)

    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "asked", "17.0.1")))

    assert find_java().class_archive is None
