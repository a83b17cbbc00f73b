from __future__ import annotations

import base64

import pytest

from milestones.common.errors import SecurityError
from milestones.common.kafka.sasl import MECHANISMS, plain, scram

# The example of RFC 7677, section 3.
NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def test_plain_sends_user_and_password():
    assert list(plain("ann", "secret")) == [b"\0ann\0secret"]


def test_scram_speaks_as_the_rfc_s_example():
    exchange = scram("sha256", "user", "pencil", NONCE)
    assert next(exchange) == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert exchange.send(SERVER_FIRST) == CLIENT_FINAL
    with pytest.raises(StopIteration):
        exchange.send(SERVER_FINAL)


def test_a_user_name_with_commas_and_equals_signs_is_escaped():
    assert next(scram("sha512", "a=b,c", "x", NONCE)).startswith(b"n,,n=a=3Db=2Cc,")


@pytest.mark.parametrize(
    "answer",
    [
        SERVER_FIRST.replace(b"r=rO", b"r=xx"),
        SERVER_FIRST.replace(b"i=4096", b"i=1"),
        SERVER_FIRST.replace(b"i=4096", b"i=many"),
        b"e=unknown-user",
        b"",
    ],
)
def test_scram_refuses_a_server_s_first_message_that_can_t_be_trusted(answer):
    exchange = scram("sha256", "user", "pencil", NONCE)
    next(exchange)
    with pytest.raises(SecurityError):
        exchange.send(answer)


@pytest.mark.parametrize("answer", [b"v=" + base64.b64encode(b"x" * 32), b"e=invalid-proof", b""])
def test_scram_refuses_a_server_that_does_not_know_the_password(answer):
    exchange = scram("sha256", "user", "pencil", NONCE)
    next(exchange)
    exchange.send(SERVER_FIRST)
    with pytest.raises(SecurityError):
        exchange.send(answer)


def test_every_mechanism_that_is_offered_begins():
    assert all(next(make("u", "p", NONCE)) for make in MECHANISMS.values())
