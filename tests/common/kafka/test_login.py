"""The first login: what it asks of whom."""

from __future__ import annotations

import socket

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.sasl_authenticate.v2 import SaslAuthenticateRequest, SaslAuthenticateResponse

from milestones.common.errors import SecurityError
from milestones.common.kafka.login import Login, log_in
from tests.common.kafka.test_wire import HANDSHAKE, Server, serving

REFUSED = {
    "SaslHandshake": HANDSHAKE,
    "SaslAuthenticate": SaslAuthenticateResponse(
        error_code=ErrorCode.sasl_authentication_failed, error_message="no such user", auth_bytes=b""
    ),
}
ANN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "ann",
    "sasl.password": "guess",
}


def logins(server: Server) -> int:
    return sum(isinstance(request, SaslAuthenticateRequest) for request in server.requests)


def test_a_refused_login_is_tried_once() -> None:
    with serving(REFUSED) as server:
        with pytest.raises(SecurityError, match="refused the login of ann"):
            Login({"bootstrap.servers": str(server.address), **ANN}).look()
        assert logins(server) == 1


def test_only_credentials_that_differ_from_the_first_are_tried() -> None:
    with serving(REFUSED) as server:
        first = {"bootstrap.servers": str(server.address), **ANN}
        log_in(first, {**first, "client.id": "other"}, dict(first))
        assert logins(server) == 0
        with pytest.raises(SecurityError):
            log_in(first, {**first, "sasl.password": "another"})
        assert logins(server) == 1


def test_servers_that_cannot_be_reached_are_no_refusal() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"127.0.0.1:{closed.getsockname()[1]}"
    login = Login({"bootstrap.servers": address, **ANN})
    login.look()
    assert (login.can_be_refused, login.problem) == (True, None)


def test_without_settings_nothing_is_asked() -> None:
    nobody = Login({})
    nobody.look()
    assert (nobody.can_be_refused, nobody.problem) == (False, None)
