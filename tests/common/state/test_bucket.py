"""Snapshots in a bucket: with its options, and in the troubles that a bucket may have."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest

from compat_tests.network.bucket import SECRET, Bucket
from milestones.common.errors import ConfigError
from milestones.common.state.snapshots.garbage import prune
from milestones.common.state.snapshots.objects import SnapshotError
from milestones.common.state.snapshots.repository import SnapshotRepository
from milestones.common.testing import StepClock
from tests.common.state.test_repository import CHANGELOG, local


@pytest.fixture
def bucket() -> Bucket:
    return Bucket()


@pytest.fixture
def endpoint(bucket: Bucket) -> Iterator[str]:
    with bucket.serving() as url:
        yield url


def test_snapshots_are_published_listed_fetched_and_pruned_in_a_bucket(
    bucket: Bucket, endpoint: str, tmp_path: Path
) -> None:
    repository = bucket.repository(endpoint)
    made = [local(tmp_path, offset, content=b"%d" % offset) for offset in (100, 200, 300)]
    for snapshot in made:
        repository.publish(snapshot)
    assert repository.newest(CHANGELOG, "counts") == made[2].manifest
    fetched = repository.fetch(made[2].manifest, tmp_path / "fetched")
    assert [path.read_bytes() for path in fetched.files] == [b"300-0", b"300-1"]
    assert repository.partitions() == [CHANGELOG]
    assert prune(repository, CHANGELOG, StepClock(10**13)).objects == 3
    assert [one.manifest for one in repository.published(CHANGELOG)] == [made[2].manifest, made[1].manifest]
    assert all(key.startswith("deep/app/") for key in bucket.content)


def test_requests_are_signed_with_the_options_and_what_the_store_shall_encrypt_it_is_told(
    bucket: Bucket, endpoint: str, tmp_path: Path
) -> None:
    bucket.repository(endpoint, aws_server_side_encryption="AES256").publish(local(tmp_path))
    puts = [headers for seen, headers in zip(bucket.seen, bucket.headers, strict=True) if seen.startswith("PUT")]
    assert len(puts) == 4
    assert all("Credential=ann/" in headers["authorization"] for headers in puts)
    assert all(headers["x-amz-server-side-encryption"] == "AES256" for headers in puts)


def test_credentials_come_from_the_environment_too(
    bucket: Bucket, endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("ACCESS_KEY_ID", "bob"), ("SECRET_ACCESS_KEY", SECRET), ("ENDPOINT", endpoint)):
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    repository = SnapshotRepository("s3://b/deep", "app")
    assert repository.newest(CHANGELOG, "counts") is None
    assert "Credential=bob/" in bucket.headers[0]["authorization"]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"nonsense": SECRET}, "'nonsense' is not valid for store 'S3'"),
        ({"aws_access_key_id": SECRET}, "Missing SecretAccessKey"),
        ({"connect_timeout": SECRET}, "Duration"),
        ({"aws_endpoint": 7}, "TypeError"),
    ],
)
def test_options_that_cannot_be_used_are_a_config_error_without_their_values(
    options: dict[str, str], why: str
) -> None:
    with pytest.raises(ConfigError, match="snapshot_url") as raised:
        SnapshotRepository("s3://b", "app", options=options)
    assert why in str(raised.value)
    assert SECRET not in "".join(traceback.format_exception(raised.value)) + repr(vars(raised.value))


def test_a_bucket_that_answers_503_for_a_minute_is_an_error_and_then_as_before(
    bucket: Bucket, endpoint: str, tmp_path: Path
) -> None:
    published = bucket.repository(endpoint).publish(local(tmp_path))
    bucket.answers = 503
    impatient = bucket.repository(endpoint, timeout_ms=900)
    for call in (
        lambda: impatient.newest(CHANGELOG, "counts"),
        lambda: impatient.fetch(published, tmp_path / "fetched"),
        lambda: impatient.publish(local(tmp_path, 200)),
        lambda: prune(impatient, CHANGELOG, StepClock()),
    ):
        with pytest.raises(SnapshotError, match="503") as raised:
            call()
        assert SECRET not in "".join(traceback.format_exception(raised.value))
    bucket.answers = None
    assert impatient.newest(CHANGELOG, "counts") == published
    newer = impatient.publish(local(tmp_path, 200))
    assert impatient.newest(CHANGELOG, "counts") == newer


def test_a_bucket_that_is_away_is_an_error_that_names_it(bucket: Bucket, tmp_path: Path) -> None:
    repository = bucket.repository("http://127.0.0.1:1", timeout_ms=300)
    for call in (lambda: repository.newest(CHANGELOG, "counts"), lambda: repository.publish(local(tmp_path))):
        with pytest.raises(SnapshotError, match="s3://b/deep") as raised:
            call()
        assert SECRET not in "".join(traceback.format_exception(raised.value))


def test_a_bucket_that_is_read_only_is_read_and_what_is_published_is_an_error(
    bucket: Bucket, endpoint: str, tmp_path: Path
) -> None:
    repository = bucket.repository(endpoint)
    published = repository.publish(local(tmp_path))
    bucket.read_only = True
    assert repository.newest(CHANGELOG, "counts") == published
    with pytest.raises(SnapshotError, match="PermissionDenied"):
        repository.publish(local(tmp_path, 200))
    assert repository.newest(CHANGELOG, "counts") == published


def test_a_bucket_that_may_not_be_listed_gives_what_the_hint_says(
    bucket: Bucket, endpoint: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    repository = bucket.repository(endpoint)
    published = repository.publish(local(tmp_path))
    repository.objects.below = lambda folder: (_ for _ in ()).throw(SnapshotError("403"))  # type: ignore[method-assign]
    assert repository.newest(CHANGELOG, "counts") == published
    assert "the snapshot in latest.json is used" in caplog.text


def test_a_bucket_that_lists_late_gives_what_the_hint_says(bucket: Bucket, endpoint: str, tmp_path: Path) -> None:
    repository = bucket.repository(endpoint)
    repository.publish(local(tmp_path, 100))
    before = set(bucket.content)
    newer = repository.publish(local(tmp_path, 200))
    bucket.hidden = set(bucket.content) - before
    assert repository.newest(CHANGELOG, "counts") == newer
    assert prune(repository, CHANGELOG, StepClock(10**13)).objects == 0
    repository.fetch(newer, tmp_path / "fetched")


def test_an_answer_that_was_lost_is_no_reason_to_fail(bucket: Bucket, endpoint: str, tmp_path: Path) -> None:
    repository, snapshot = bucket.repository(endpoint), local(tmp_path)
    published = repository.publish(snapshot)
    assert repository.publish(snapshot) == published
