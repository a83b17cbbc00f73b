"""Removes a container when the process that started it is gone, in whatever way: `watchdog.py CONTAINER_NAME`.

The owner keeps our standard input open. Its end without the word `removed` means that nobody else will clean up.

*Guarantees*: nothing is removed while the owner lives.
*Assumes*: run in a session of its own, so that Ctrl-C reaches the owner only.
"""

from __future__ import annotations

import contextlib
import sys

REMOVED = b"removed\n"


def main(name: str) -> None:
    """Wait for the owner's end."""
    if sys.stdin.buffer.read().endswith(REMOVED):
        return
    import docker

    with contextlib.suppress(docker.errors.DockerException), contextlib.closing(docker.from_env()) as client:
        client.api.remove_container(name, v=True, force=True)


if __name__ == "__main__":
    main(sys.argv[1])
