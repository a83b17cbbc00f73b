"""Snapshots' files at rest, encrypted: AES-256-GCM in frames of 1 MiB. Extra `milestones[snapshots]`.

    magic, salt (32 bytes), frame 0, frame 1, ... , last frame       a frame: up to 1 MiB of the file, and its tag

Each file has a key of its own, derived from the user's and the salt by HKDF-SHA256. A frame's nonce is its number, with
a bit that only the last one has. What the file is, and where it lies, is authenticated with each frame.

*Guarantees*: what comes out of an `Unsealer` that has ended is the file that was sealed with that key for that place:
frames can't be changed, swapped, repeated or left out, and files can't be exchanged.
*Assumes*: the local disk is the system's to encrypt: a snapshot lies there in the clear before and after.
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
"""Bytes of the file in one frame."""
TAG, SALT, KEY = 16, 32, 32
"""Bytes of a frame's tag, of a file's salt, of a key."""
MAGIC: Final = b"milestones-sealed-1\n"
_HEADER: Final = len(MAGIC) + SALT
_WANTED: Final = "must be id:key, or id:key,oldid:oldkey; a key is 32 bytes in base64 (`openssl rand -base64 32`)"


class UnsealError(Exception):
    """Bytes that weren't sealed with this key for this place, or aren't all of them."""


@dataclass(frozen=True)
class SnapshotKeys:
    """The user's keys by id. Files are written with `current`, None: in the clear."""

    current: str | None = None
    keys: Mapping[str, bytes] = field(default_factory=dict, repr=False)

    @classmethod
    def parse(cls, text: str | None) -> SnapshotKeys:
        """Of the setting's form; its first key is the current one. `ValueError`, without the keys."""
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
    """Write `source` to `target`, encrypted. `context`: what the file is, and where it will lie."""
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
    """Decrypts a file as it comes, into `target`. `feed` its bytes, then `end`; both raise `UnsealError`."""

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
        # The frame that comes last is told from a full one by what follows it: nothing.
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
