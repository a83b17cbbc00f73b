"""Snapshots that are encrypted: what comes back is what was written, with the right key, or nothing does."""

from __future__ import annotations

import io
from base64 import b64encode
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from milestones.common.errors import ConfigError
from milestones.common.state.snapshots.repository import LocalSnapshot, SnapshotKeyError, SnapshotRepository
from milestones.common.state.snapshots.sealing import FRAME, TAG, SnapshotKeys, Unsealer, UnsealError, seal
from tests.common.state.test_repository import CHANGELOG, local

KEY, OTHER = b"k" * 32, b"o" * 32
K1, K2 = (f"{name}:{b64encode(key).decode()}" for name, key in (("k1", KEY), ("k2", OTHER)))
HEADER = 52
"""Bytes before the first frame."""


def sealed(tmp_path: Path, content: bytes, key: bytes = KEY, context: bytes = b"here") -> bytes:
    plain, target = tmp_path / "plain", tmp_path / "sealed"
    plain.write_bytes(content)
    seal(plain, target, key, context)
    return target.read_bytes()


def unsealed(data: bytes, key: bytes = KEY, context: bytes = b"here", piece: int = 300_000) -> bytes:
    target = io.BytesIO()
    unsealer = Unsealer(target, key, context)
    for at in range(0, len(data), piece):
        unsealer.feed(data[at : at + piece])
    unsealer.end()
    return target.getvalue()


@pytest.mark.parametrize("size", [0, 1, FRAME - 1, FRAME, FRAME + 1, 3 * FRAME, 3 * FRAME + 7])
def test_a_file_comes_back_as_it_was_whatever_the_pieces_in_which_it_comes(tmp_path: Path, size: int) -> None:
    content = bytes(range(256)) * (size // 256 + 1)
    data = sealed(tmp_path, content[:size])
    for piece in (1_000, FRAME, FRAME + TAG, 10 * FRAME):
        assert unsealed(data, piece=piece) == content[:size]
    assert content[:size] not in data or size < 2


def test_two_sealings_of_one_file_have_nothing_in_common(tmp_path: Path) -> None:
    one, other = sealed(tmp_path, b"x" * 100), sealed(tmp_path, b"x" * 100)
    assert one[20:] != other[20:]
    assert one[HEADER:] != other[HEADER:]


def frames(data: bytes) -> tuple[bytes, list[bytes]]:
    """The header, and the frames."""
    body = data[HEADER:]
    return data[:HEADER], [body[at : at + FRAME + TAG] for at in range(0, len(body), FRAME + TAG)]


CHANGES: dict[str, Callable[[bytes, list[bytes]], bytes]] = {
    "swapped": lambda head, body: head + body[1] + body[0] + body[2],
    "repeated": lambda head, body: head + body[0] + body[0] + body[1] + body[2],
    "left out": lambda head, body: head + body[0] + body[2],
    "last one cut off": lambda head, body: head + body[0] + body[1],
    "all cut off": lambda head, body: head,
    "cut in a frame": lambda head, body: head + body[0] + body[1] + body[2][:-1],
    "cut in the header": lambda head, body: head[:-1],
    "something at the end": lambda head, body: head + b"".join(body) + b"\0",
    "another salt": lambda head, body: head[:-1] + bytes([head[-1] ^ 1]) + b"".join(body),
    "another magic": lambda head, body: b"M" + head[1:] + b"".join(body),
    "a bit": lambda head, body: head + body[0][:-1] + bytes([body[0][-1] ^ 1]) + body[1] + body[2],
}


@pytest.mark.parametrize("change", CHANGES)
def test_frames_cannot_be_changed_swapped_repeated_or_cut(tmp_path: Path, change: str) -> None:
    head, body = frames(sealed(tmp_path, bytes(2 * FRAME + 1)))
    assert len(body) == 3
    with pytest.raises(UnsealError):
        unsealed(CHANGES[change](head, body))


def test_a_file_is_read_with_its_key_and_at_its_place_only(tmp_path: Path) -> None:
    data = sealed(tmp_path, b"content")
    for key, context in ((OTHER, b"here"), (KEY, b"there")):
        with pytest.raises(UnsealError):
            unsealed(data, key, context)


@pytest.mark.parametrize("text", ["", ",", "k1", "k1:", ":" + K1[3:], "k1:c2VzYW1l", f"{K1},{K1}", "k1:" + "!" * 44])
def test_what_is_no_key_is_a_config_error_without_it(text: str) -> None:
    with pytest.raises(ValueError, match="32 bytes in base64") as raised:
        SnapshotKeys.parse(text)
    assert K1[3:] not in str(raised.value)
    if text:
        with pytest.raises(ConfigError, match="32 bytes") as refused:
            SnapshotRepository("file:///x", "app", encryption_key=text)
        assert K1[3:] not in str(refused.value)


def test_the_first_key_is_the_one_that_is_written_with() -> None:
    keys = SnapshotKeys.parse(f" {K2} , {K1}")
    assert (keys.current, keys.keys) == ("k2", {"k2": OTHER, "k1": KEY})
    assert SnapshotKeys.parse(None).current is None
    assert "KEY" not in repr(keys)
    assert "ooo" not in repr(keys)


# -- in a repository


def repository(tmp_path: Path, keys: str | None) -> SnapshotRepository:
    return SnapshotRepository(f"file://{tmp_path}/remote", "app", encryption_key=keys)


def test_an_encrypted_snapshot_comes_back_and_nothing_of_it_is_in_the_clear(tmp_path: Path) -> None:
    own = local(tmp_path, content=b"entries" * 1_000)
    published = repository(tmp_path, K1).publish(own)
    assert [file.key_id for file in published.files] == ["k1", "k1"]
    assert not any(b"entries" in path.read_bytes() for path in (tmp_path / "remote").rglob("*.sst"))
    assert sorted(path.name for path in own.directory.iterdir()) == ["00000.sst", "00001.sst"]
    for keys in (K1, f"{K2},{K1}"):
        reader = repository(tmp_path, keys)
        newest = reader.newest(CHANGELOG, "counts")
        assert newest == published
        fetched = reader.fetch(newest, tmp_path / "fetched")
        assert [path.read_bytes() for path in fetched.files] == [path.read_bytes() for path in own.files]
        for file in newest.files:
            reader.verify(newest, file)


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        (None, "needs the key of the id 'k1', and snapshot_encryption_key has none"),
        (K2, "needs the key of the id 'k1', and snapshot_encryption_key has 'k2'"),
        (K2.replace("k2", "k1"), "has another key of the id 'k1'"),
    ],
)
def test_a_wrong_or_missing_key_is_an_error_that_says_which_one_is_needed(
    tmp_path: Path, keys: str | None, why: str
) -> None:
    published = repository(tmp_path, K1).publish(local(tmp_path))
    reader = repository(tmp_path, keys)
    for call in (
        lambda: reader.fetch(published, tmp_path / "fetched"),
        lambda: reader.verify(published, published.files[0]),
    ):
        with pytest.raises(SnapshotKeyError, match=why):
            call()
    assert not list(tmp_path.glob("fetched/*"))


def test_after_a_rotation_a_delta_is_on_a_base_of_the_old_key(tmp_path: Path) -> None:
    base = repository(tmp_path, K1).publish(local(tmp_path, content=b"base"))
    own = local(tmp_path, 200, content=b"delta")
    rotated = repository(tmp_path, f"{K2},{K1}")
    delta = rotated.publish(LocalSnapshot(base.with_delta(own.manifest), own.directory))
    assert [file.key_id for file in delta.files] == ["k1", "k1", "k2", "k2"]
    fetched = rotated.fetch(delta, tmp_path / "fetched")
    assert [path.read_bytes() for path in fetched.files] == [b"base-0", b"base-1", b"delta-0", b"delta-1"]


def test_a_file_that_was_put_in_anothers_place_is_refused(tmp_path: Path) -> None:
    owner = repository(tmp_path, K1)
    one, other = owner.publish(local(tmp_path, content=b"one")), owner.publish(local(tmp_path, content=b"other"))
    place = tmp_path / "remote" / owner.place(CHANGELOG)
    forged = [(place / other.path_of(file)).read_bytes() for file in other.files]
    for file, data in zip(one.files, forged, strict=True):
        (place / one.path_of(file)).write_bytes(data)
    with pytest.raises(SnapshotKeyError, match="or the file was moved"):
        owner.fetch(replace(one, files=other.files), tmp_path / "fetched")


def test_damage_is_told_from_a_wrong_key(tmp_path: Path) -> None:
    owner = repository(tmp_path, K1)
    published = owner.publish(local(tmp_path))
    path = tmp_path / "remote" / owner.place(CHANGELOG) / published.path_of(published.files[1])
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(Exception, match=r"00001\.sst is damaged") as raised:
        owner.fetch(published, tmp_path / "fetched")
    assert not isinstance(raised.value, SnapshotKeyError)
