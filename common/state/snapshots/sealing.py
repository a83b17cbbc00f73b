"""Encrypts the files of snapshots with AES-256-GCM, in frames of 1 MiB. Needs the extra `milestones[snapshots]`.

    magic, salt (32 bytes), frame 0, frame 1, ... , last frame       a frame: up to 1 MiB of the file, and its tag

Each file has a key of its own. HKDF-SHA256 derives it from the user's key and the salt. A frame's nonce is its number
and a bit that is set only in the last frame. Each frame's tag also authenticates the file's path (`context`).

*Guarantees*: if `Unsealer.end` returns, the output is the very file that was encrypted with this key for this path. An
attacker can't change, swap, repeat or leave out frames, and can't exchange files.
*Assumes*: the files on the local disk aren't encrypted here. If they must be, the operating system does it.
"""

from __future__ import annotations

import os
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

from milestones.common.errors import ConfigError

FRAME: Final = 1024 * 1024
"""The number of bytes of the file in one frame."""
TAG, SALT, KEY = 16, 32, 32
"""The number of bytes of a frame's tag, of a file's salt, and of a key."""
MAGIC: Final = b"milestones-sealed-1\n"
_HEADER: Final = len(MAGIC) + SALT
_WANTED: Final = "must be id:key, or id:key,oldid:oldkey; a key is 32 bytes in base64 (`openssl rand -base64 32`)"


class UnsealError(Exception):
    """The bytes weren't encrypted with this key for this path, or some of them are missing."""


@dataclass(frozen=True)
class SnapshotKeys:
    """The user's keys, keyed by id. `current`: the id of the key that encrypts new files. None means that new files
    aren't encrypted."""

    current: str | None = None
    keys: Mapping[str, bytes] = field(default_factory=dict, repr=False)

    @classmethod
    def parse(cls, text: str | None) -> SnapshotKeys:
        """Parse the text of the setting `snapshot_encryption_key`. Its first key is the current one. Raises
        `ValueError`, whose text doesn't contain the keys."""
        keys: dict[str, bytes] = {}
        for part in (text or "").split(","):
            name, colon, encoded = (piece.strip() for piece in part.partition(":"))
            if not part.strip():
                continue
            try:
                key = b64decode(encoded, validate=True)
            except (Base64Error, ValueError):
                raise ValueError(_WANTED) from None
            if not (colon and name.isprintable() and name and len(key) == KEY) or name in keys:
                raise ValueError(_WANTED)
            keys[name] = key
        if text is not None and not keys:
            raise ValueError(_WANTED)
        return cls(next(iter(keys), None), keys)


def seal(source: Path, target: Path, key: bytes, context: bytes) -> None:
    """Encrypt the file `source` into `target`. `context`: the path at which the file will be stored."""
    salt = os.urandom(SALT)
    cipher = _cipher(key, salt)
    with source.open("rb") as plain, target.open("wb") as sealed:
        sealed.write(MAGIC + salt)
        number, frame = 0, plain.read(FRAME)
        while True:
            following = plain.read(FRAME)
            sealed.write(cipher.encrypt(_nonce(number, last=not following), frame, context))
            if not following:
                return
            number, frame = number + 1, following


class Unsealer:
    """Decrypts a file into `target`, piece by piece. The caller passes the bytes to `feed`, and then calls `end`. Both
    raise `UnsealError`."""

    def __init__(self, target: IO[bytes], key: bytes, context: bytes) -> None:
        self._target, self._key, self._context = target, key, context
        self._held = bytearray()
        self._cipher: Any = None
        self._number = 0

    def feed(self, data: bytes) -> None:
        self._held += data
        if self._cipher is None:
            if len(self._held) < _HEADER:
                return
            self._begin()
        # A frame is the last one if no byte follows it. So a full frame is decrypted once one more byte has come.
        while len(self._held) > FRAME + TAG:
            self._open(bytes(self._held[: FRAME + TAG]), last=False)
            del self._held[: FRAME + TAG]

    def end(self) -> None:
        if self._cipher is None:
            raise UnsealError("it ends before its first frame")
        self._open(bytes(self._held), last=True)

    def _begin(self) -> None:
        if self._held[: len(MAGIC)] != MAGIC:
            raise UnsealError("it isn't encrypted as this version does it")
        self._cipher = _cipher(self._key, bytes(self._held[len(MAGIC) : _HEADER]))
        del self._held[:_HEADER]

    def _open(self, frame: bytes, *, last: bool) -> None:
        from cryptography.exceptions import InvalidTag

        try:
            self._target.write(self._cipher.decrypt(_nonce(self._number, last=last), frame, self._context))
        except (InvalidTag, ValueError):
            raise UnsealError(f"frame {self._number} is not what was encrypted with this key") from None
        self._number += 1


def _nonce(number: int, *, last: bool) -> bytes:
    return number.to_bytes(11, "big") + (b"\x01" if last else b"\x00")


def _cipher(key: bytes, salt: bytes) -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF
    except ImportError as error:
        reason = "needs the extra 'snapshots': pip install 'milestones[snapshots]'"
        raise ConfigError("snapshot_encryption_key", None, reason) from error
    return AESGCM(HKDF(SHA256(), KEY, salt, MAGIC).derive(key))
