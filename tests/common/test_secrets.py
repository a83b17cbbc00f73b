"""What of a setting is printed."""

from __future__ import annotations

import pytest

from milestones.common.errors import ConfigError
from milestones.common.secrets import HIDDEN, scrubbed, shown, without_credentials


@pytest.mark.parametrize(
    "name",
    [
        "sasl.password",
        "sasl_password",
        "SASL_PASSWORD",
        "consumer_ssl_key_pem",
        "main_consumer_sasl_pasword",
        "sasl_oauthbearer_assertion_private_key_passphrase",
        "sasl_oauthbearer_config",
        "ssl_keystore_password",
        "producer_ssl_key_passwort",
        "snapshot_options",
        "snapshot_options.aws_region",
        "snapshot_encryption_key",
        "snapshot_encription_keys",
        "password",
    ],
)
def test_a_secret_is_hidden_under_every_spelling_of_its_name(name: str) -> None:
    assert shown(name, "canary") == HIDDEN
    assert "canary" not in str(ConfigError(name, "canary", "is wrong"))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sasl_username", "ann"),
        ("ssl_ca_location", "/ca.pem"),
        ("enable_ssl_certificate_verification", False),
        ("default_key_serde", "string"),
        ("poll_ms", 5),
        ("snapshot_timeout_ms", 5),
        ("snapshot_url", "file:///snapshots"),
    ],
)
def test_what_is_no_secret_is_shown(name: str, value: object) -> None:
    assert shown(name, value) == value


@pytest.mark.parametrize(
    ("url", "printed"),
    [
        ("s3://key:canary@bucket/snapshots", "s3://***@bucket/snapshots"),
        ("s3://key:can/ary@bucket/snapshots", "s3://***@bucket/snapshots"),
        ("https://host/x?sig=canary&b=c", "https://host/x?***"),
        ("ftp://ann:c@nary@host/x", "ftp://***@host/x"),
        ("https://canary@host:80/x?token=canary", "https://***@host:80/x?***"),
        ("file:///mnt/a@b", "file:///mnt/a@b"),
        ("is it so?", "is it so?"),
    ],
)
def test_a_url_is_shown_without_its_credentials_and_query(url: str, printed: str) -> None:
    assert without_credentials(url) == printed
    assert without_credentials(f"can't read '{url}': no") == f"can't read '{printed}': no"
    assert shown("snapshot_url", url) == printed
    assert str(ConfigError("snapshot_url", url, f"{url} can't be used")).count(printed) == 2


def test_the_error_of_another_library_is_shown_without_the_secrets_that_it_was_given() -> None:
    settings = {"sasl.password": "canary", "ssl.key.password": "x", "client.id": "words"}
    assert scrubbed('words: "canary" is no "x" in x.509', settings) == 'words: "***" is no "***" in x.509'
