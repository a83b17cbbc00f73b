"""Kafka's container image, built on this machine: `python -m compat_tests.containers.image`. See README.md.

*Guarantees*: an image of the same recipe is never built twice. A build that fails or is interrupted leaves no image, no
mount and no folder behind. The image's tag changes with everything that goes into it.
*Assumes*: for a build: root, a Docker engine on this machine, `debootstrap`.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from milestones.common.kafka.embedded import EmbeddedKafkaError, kafka_jars
from milestones.common.kafka.embedded.jars import KAFKA_COORDINATES, KAFKA_VERSION

OFFICIAL_IMAGE = f"apache/kafka:{KAFKA_VERSION}"
JARS = "/opt/kafka/libs"
"""Where both images keep Kafka's jars."""

_SUITE = "bookworm"
_JAVA = "openjdk-17-jre-headless"
_USELESS = ("var/cache/apt", "var/lib/apt/lists", "var/log", "usr/share/doc", "usr/share/man", "usr/share/locale")
_CHANGES = ("ENV LANG=C.UTF-8", f'LABEL org.opencontainers.image.title="Apache Kafka {KAFKA_VERSION} for tests"')
_RECIPE = "\n".join((_SUITE, _JAVA, JARS, *_USELESS, *_CHANGES, *KAFKA_COORDINATES))

LOCAL_IMAGE = f"milestones-kafka:{KAFKA_VERSION}-{hashlib.sha256(_RECIPE.encode()).hexdigest()[:8]}"
BUILD_COMMAND = "python -m compat_tests.containers.image"


class ImageError(Exception):
    """The image can't be built; the message says why and what to do."""


def build(mirror: str | None = None, ca: Path | None = None) -> bool:
    """Build `LOCAL_IMAGE` unless it exists; whether it was built. Raises `ImageError`.

    `mirror`: URL of a Debian mirror, None: debootstrap's own. `ca`: certificates to trust when downloading.
    """
    if _exists():
        return False
    _check_tools()
    if ca is not None and not ca.is_file():
        raise ImageError(f"--ca {ca}: no such file")
    folder = Path(tempfile.mkdtemp(prefix="milestones-image-"))
    try:
        environment = _trusting(ca, folder)
        jars = _jars()
        root = folder / "root"
        _debian(root, mirror, environment, folder / "debootstrap.log")
        _put_jars(jars, root)
        _import(root)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return True


def _exists() -> bool:
    if shutil.which("docker") is None:
        raise ImageError("the command `docker` is missing: install Docker (Debian: apt-get install docker.io iptables)")
    found = subprocess.run(["docker", "images", "--quiet", LOCAL_IMAGE], capture_output=True, text=True, check=False)
    if found.returncode != 0:
        raise ImageError(f"the Docker engine doesn't answer, start it (dockerd): {found.stderr.strip()}")
    return bool(found.stdout.strip())


def _check_tools() -> None:
    if os.geteuid() != 0:
        raise ImageError(
            "debootstrap needs root: run this as root, or use the official image: "
            f"MILESTONES_KAFKA_IMAGE={OFFICIAL_IMAGE}"
        )
    for tool, package in (("debootstrap", "debootstrap"), ("unshare", "util-linux"), ("tar", "tar")):
        if shutil.which(tool) is None:
            raise ImageError(f"the command `{tool}` is missing: install the package {package}")


def _trusting(ca: Path | None, folder: Path) -> dict[str, str]:
    """The environment in which wget, which debootstrap calls, and our own downloads trust `ca`."""
    if ca is None:
        return dict(os.environ)
    settings = folder / "wgetrc"
    settings.write_text(f"ca_certificate = {ca.absolute()}\n")
    os.environ["REQUESTS_CA_BUNDLE"] = str(ca.absolute())
    return {**os.environ, "WGETRC": str(settings)}


def _jars() -> Path:
    try:
        return kafka_jars(_say)
    except EmbeddedKafkaError as error:
        raise ImageError(str(error)) from error


def _debian(root: Path, mirror: str | None, environment: Mapping[str, str], log: Path) -> None:
    """A minimal Debian with Java. What debootstrap mounts, it mounts in a namespace that ends with it."""
    _say(f"installing Debian {_SUITE} with {_JAVA} (a minute or two)")
    command = ["unshare", "--mount", "debootstrap", "--variant=minbase", f"--include={_JAVA}", _SUITE, str(root)]
    with log.open("wb") as output:
        done = subprocess.run(
            [*command, *([mirror] if mirror else [])], env=environment, stdout=output, stderr=output, check=False
        )
    if done.returncode != 0:
        own = root / "debootstrap" / "debootstrap.log"
        tails = [
            line
            for file in (log, own)
            if file.exists()
            for line in file.read_text("utf-8", "replace").splitlines()[-12:]
        ]
        raise ImageError(
            "debootstrap failed; --mirror names another Debian mirror, --ca certificates to trust. It ended with\n"
            + "\n".join(tails)
        )
    for useless in _USELESS:
        shutil.rmtree(root / useless, ignore_errors=True)
        (root / useless).mkdir(parents=True, exist_ok=True)


def _put_jars(jars: Path, root: Path) -> None:
    target = root / JARS.lstrip("/")
    target.mkdir(parents=True)
    for jar in sorted(jars.glob("*.jar")):
        shutil.copy2(jar, target)


def _import(root: Path) -> None:
    _say(f"importing {LOCAL_IMAGE}")
    changes = [argument for change in _CHANGES for argument in ("--change", change)]
    # Under another name first: half an archive makes an image, too.
    unfinished = f"{LOCAL_IMAGE}-unfinished"
    with subprocess.Popen(
        ["tar", "--create", "--one-file-system", "--numeric-owner", "-C", str(root), "."], stdout=subprocess.PIPE
    ) as archive:
        done = subprocess.run(
            ["docker", "import", *changes, "-", unfinished], stdin=archive.stdout, capture_output=True
        )
        assert archive.stdout is not None
        archive.stdout.close()
    try:
        if done.returncode != 0 or archive.returncode != 0:
            raise ImageError(f"docker import failed: {done.stderr.decode(errors='replace').strip() or 'tar failed'}")
        subprocess.run(["docker", "tag", unfinished, LOCAL_IMAGE], check=True)
    finally:
        subprocess.run(["docker", "rmi", unfinished], capture_output=True, check=False)


def _say(line: str) -> None:
    print(f"image: {line}", file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. 0: the image is there, built now or before; 1: it isn't, and why."""
    parser = argparse.ArgumentParser(prog=BUILD_COMMAND, description=f"Build {LOCAL_IMAGE}, unless it exists.")
    parser.add_argument("--mirror", default=os.environ.get("MILESTONES_DEBIAN_MIRROR"), help="URL of a Debian mirror")
    parser.add_argument("--ca", type=Path, help="file of certificates to trust when downloading")
    options = parser.parse_args(arguments)
    try:
        built = build(options.mirror, options.ca)
    except ImageError as error:
        _say(str(error))
        return 1
    _say(f"{LOCAL_IMAGE} {'is built' if built else 'exists'}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
