"""`Connection`: speaks Kafka's protocol with one broker, over TCP or TLS, with SASL. `kio` defines the messages.

*Guarantees*: requests are sent one by one, and answers come in the same order. No call blocks longer than its timeout.
The timeout of a connect is `socket.connection.setup.timeout.ms`. After a `ConnectionLostError` the connection stays
closed. If the broker's machine disappears, the operating system notices after the times in `DEAD_AFTER`, even while
nothing is sent.
*Assumes*: one owner thread per connection. Settings have confluent-kafka's names. Security settings that aren't
supported are refused; settings about other things are ignored.

*Why this way*: librdkafka has no calls for the group protocol with user data of our own, nor for offsets with metadata
that Java can read ([decision 0003](../../docs/decisions/0003-own-group-member.md)). `kio` has the schemas of all
requests, so only the connection is written here.
"""

from __future__ import annotations

import io
import secrets
import socket
import ssl
import time
from typing import Protocol, TypeVar

from kio.schema.api_versions.v3 import ApiVersionsRequest, ApiVersionsResponse
from kio.schema.errors import ErrorCode
from kio.schema.sasl_authenticate.v2 import SaslAuthenticateRequest, SaslAuthenticateResponse
from kio.schema.sasl_handshake.v1 import SaslHandshakeRequest, SaslHandshakeResponse
from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError
from kio.static.primitive import i32
from kio.static.protocol import RequestPayload, ResponsePayload

from milestones.common.errors import MembershipError, MilestonesError, SecurityError
from milestones.common.kafka.sasl import MECHANISMS
from milestones.common.kafka.wire_settings import Address, WireSettings

R = TypeVar("R", bound=ResponsePayload)

MAX_ANSWER_BYTES = 100 << 20
NOT_TLS = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE"})
"""OpenSSL's error reasons for an answer that isn't TLS."""
HUNG_UP = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
"""The errors of a connection that the broker has closed. A broker that stops may close it during a TLS handshake."""
SOFTWARE = "milestones"
SEND_TIMEOUT_S = 10
"""The longest time to send a request. Requests are small, so a broker that needs longer counts as lost."""
DEAD_AFTER = {"TCP_KEEPIDLE": 10, "TCP_KEEPALIVE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 25_000}
"""Socket options, as far as the platform has them. With them a broker that can't be reached counts as lost after 25 s.
By default Linux first checks an idle connection after two hours, and resends unacknowledged bytes for 15 minutes."""
TLS_ALERT = b"\x15\x03"
"""The first bytes of a TLS listener's answer to a plain request."""
NEEDED = "use Apache Kafka 3.2 or newer"


class ConnectionLostError(MilestonesError):
    """The connection is lost, and the request may have succeeded or not. The caller reconnects. Users never see this
    error. `connected`: True if the address was reached, and the set-up of the connection failed later."""

    connected = False


class Wire(Protocol):
    """The interface of a connection to one broker."""

    def send(self, request: RequestPayload) -> None:
        """Send a request, without waiting for the answer."""
        ...

    def receive(self, answer: type[R], timeout_ms: int) -> R | None:
        """Wait for the answer to the oldest unanswered request. Returns None if no answer has come in time; then the
        caller may call `receive` once more."""
        ...

    def call(self, request: RequestPayload, answer: type[R], timeout_ms: int) -> R:
        """Send a request, and wait for its answer. Raises `ConnectionLostError` if no answer comes in time."""
        ...

    def close(self) -> None: ...


class Connect(Protocol):
    """Opens a connection that is ready for requests (TLS, versions and SASL done)."""

    def __call__(self, address: Address) -> Wire: ...


class Connection:
    """A `Wire` over a socket. `Connector` makes it."""

    def __init__(self, sock: socket.socket, address: Address, client_id: str) -> None:
        self.address = address
        self._sock = sock
        self._client_id = client_id
        self._next_id = 0
        self._expected: list[int] = []
        self._buffer = bytearray()
        self._versions: dict[int, tuple[int, int]] = {}

    def send(self, request: RequestPayload) -> None:
        self._check_version(request)
        self._next_id += 1
        body = io.BytesIO()
        header = request.__header_schema__(
            request_api_key=request.__api_key__,
            request_api_version=request.__version__,
            correlation_id=i32(self._next_id),
            client_id=self._client_id,
        )
        entity_writer(type(header))(body, header)
        entity_writer(type(request))(body, request)
        frame = body.getvalue()
        try:
            self._sock.settimeout(SEND_TIMEOUT_S)
            self._sock.sendall(len(frame).to_bytes(4, "big") + frame)
        except OSError as error:
            raise self._lost(f"sending failed: {error}") from error
        self._expected.append(self._next_id)

    def receive(self, answer: type[R], timeout_ms: int) -> R | None:
        deadline = time.monotonic() + timeout_ms / 1000
        while (frame := self._take_frame()) is None:
            if not self._fill(deadline):
                return None
        try:
            header, offset = entity_reader(answer.__header_schema__)(frame, 0)
            if header.correlation_id != self._expected.pop(0):
                raise self._lost("an answer came to a request that wasn't sent")
            return entity_reader(answer)(frame, offset)[0]
        except (SerialError, ValueError, IndexError) as error:
            raise self._lost(f"an answer can't be read as {answer.__name__}: {error}") from error

    def call(self, request: RequestPayload, answer: type[R], timeout_ms: int) -> R:
        self.send(request)
        result = self.receive(answer, timeout_ms)
        if result is None:
            # A late answer would be taken for the answer to the next request.
            raise self._lost(f"no answer to {type(request).__name__} within {timeout_ms} ms")
        return result

    def close(self) -> None:
        self._sock.close()

    def negotiate(self, timeout_ms: int) -> None:
        """Ask the broker which versions of each request it supports. `send` refuses requests of other versions."""
        request = ApiVersionsRequest(client_software_name=SOFTWARE, client_software_version="1")
        answer = self.call(request, ApiVersionsResponse, timeout_ms)
        if answer.error_code is not ErrorCode.none:
            raise MembershipError(f"{self.address}: the broker is too old ({answer.error_code.name}): {NEEDED}")
        self._versions = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}

    def authenticate(self, mechanism: str, username: str, password: str, timeout_ms: int) -> None:
        """Log in with SASL. Raises `SecurityError` if the broker refuses, or can't prove that it knows the password."""
        hello = self.call(SaslHandshakeRequest(mechanism=mechanism), SaslHandshakeResponse, timeout_ms)
        if hello.error_code is not ErrorCode.none:
            raise SecurityError(
                f"{self.address} doesn't offer sasl.mechanism {mechanism}, but {', '.join(hello.mechanisms) or 'none'}"
            )
        exchange = MECHANISMS[mechanism](username, password, secrets.token_urlsafe(24))
        message = next(exchange)
        while True:
            request = SaslAuthenticateRequest(auth_bytes=message)
            answer = self.call(request, SaslAuthenticateResponse, timeout_ms)
            if answer.error_code is not ErrorCode.none:
                raise SecurityError(
                    f"Kafka refused the login of {username} ({self.address}, {mechanism}): "
                    f"{answer.error_message or answer.error_code.name}; check sasl.username and sasl.password"
                )
            try:
                message = exchange.send(answer.auth_bytes)
            except StopIteration:
                return

    def _check_version(self, request: RequestPayload) -> None:
        if not self._versions:
            return
        lowest, highest = self._versions.get(request.__api_key__, (0, -1))
        if not lowest <= request.__version__ <= highest:
            raise MembershipError(
                f"{self.address}: the broker speaks {type(request).__name__} {lowest} to {highest}, version "
                f"{request.__version__} is needed: {NEEDED}"
            )

    def _take_frame(self) -> bytes | None:
        if len(self._buffer) < 4:
            return None
        size = int.from_bytes(self._buffer[:4], "big")
        if self._buffer[:2] == TLS_ALERT:
            self.close()
            raise SecurityError(f"{self.address} speaks TLS: set security.protocol to SSL or SASL_SSL")
        if size > MAX_ANSWER_BYTES:
            raise self._lost(f"an answer of {size} bytes: is this a Kafka broker, and security.protocol right?")
        if len(self._buffer) < 4 + size:
            return None
        frame = bytes(self._buffer[4 : 4 + size])
        del self._buffer[: 4 + size]
        return frame

    def _fill(self, deadline: float) -> bool:
        """Read bytes into the buffer. Returns False if none came before the deadline. Reads once even if the deadline
        has passed."""
        self._sock.settimeout(max(deadline - time.monotonic(), 0.001))
        try:
            data = self._sock.recv(65536)
        except TimeoutError:
            return False
        except OSError as error:
            raise self._lost(f"receiving failed: {error}") from error
        if not data:
            raise self._lost("the broker closed the connection")
        self._buffer += data
        return True

    def _lost(self, reason: str) -> ConnectionLostError:
        self.close()
        return ConnectionLostError(f"{self.address}: {reason}")


class Connector:
    """A `Connect` with the settings of one client."""

    def __init__(self, settings: WireSettings) -> None:
        self._settings = settings
        self._tls = settings.tls_context()

    def __call__(self, address: Address) -> Connection:
        """Connect to the broker. Raises `ConnectionLostError` if a later try may succeed. Raises `MembershipError` if
        no try can succeed: `SecurityError` if the security settings are the cause."""
        s = self._settings
        sock = self._open(address)
        connection = Connection(sock, address, s.client_id)
        try:
            connection.negotiate(s.connect_timeout_ms)
            if s.sasl is not None:
                connection.authenticate(s.sasl.mechanism, s.sasl.username, s.sasl.password, s.connect_timeout_ms)
        except ConnectionLostError as error:
            connection.close()
            # With TLS 1.3 a broker reports a missing client certificate only after the handshake.
            if isinstance(error.__cause__, ssl.SSLError) and not isinstance(error.__cause__, HUNG_UP):
                raise self._tls_failed(address, error.__cause__) from error
            error.connected = True
            raise
        except BaseException:
            connection.close()
            raise
        return connection

    def _open(self, address: Address) -> socket.socket:
        """Connect to the first address of the host that answers, IPv6 or IPv4. Returns the socket."""
        s = self._settings
        timeout = s.connect_timeout_ms / 1000
        reason: OSError | None = None
        connected = False
        try:
            found = socket.getaddrinfo(address.host, address.port, s.family, socket.SOCK_STREAM)
        except OSError as error:
            raise ConnectionLostError(f"{address}: the host name can't be resolved: {error}") from error
        for family, kind, protocol, _, target in found:
            sock = socket.socket(family, kind, protocol)
            try:
                sock.settimeout(timeout)
                sock.connect(target)
                connected = True
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                for option, value in DEAD_AFTER.items():
                    if hasattr(socket, option):
                        sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
                return sock if self._tls is None else self._secure(sock, address)
            except OSError as error:
                sock.close()
                reason = error
            except BaseException:
                sock.close()
                raise
        lost = ConnectionLostError(f"{address}: {reason}")
        lost.connected = connected
        raise lost from reason

    def _secure(self, sock: socket.socket, address: Address) -> socket.socket:
        assert self._tls is not None
        try:
            return self._tls.wrap_socket(sock, server_hostname=address.host)
        except ssl.SSLCertVerificationError as error:
            raise SecurityError(
                f"{address}: its certificate isn't trusted: {error.verify_message}; check ssl.ca.location, and that "
                "the certificate names this host (ssl.endpoint.identification.algorithm)"
            ) from error
        except HUNG_UP:
            raise
        except ssl.SSLError as error:
            raise self._tls_failed(address, error) from error

    def _tls_failed(self, address: Address, error: ssl.SSLError) -> SecurityError:
        reason = getattr(error, "reason", None) or str(error)
        if reason in NOT_TLS:
            return SecurityError(
                f"{address} doesn't speak TLS ({reason}): set security.protocol to PLAINTEXT or SASL_PLAINTEXT"
            )
        return SecurityError(
            f"{address}: TLS failed: {reason}; check security.protocol, and the client's certificate "
            "(ssl.certificate.location) if the broker wants one"
        )
