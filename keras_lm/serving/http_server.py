"""The HTTP server for REST: uvicorn, with limits on slow clients; and the names it answers to."""

import asyncio
import functools
import socket
import ssl
import threading
from fnmatch import fnmatchcase
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

# asyncio accepts up to this many connections before it serves any of them, and logs as many errors
# a second if the process cannot open more files.
ACCEPTED_AT_ONCE = 8
QUEUED = 1024  # by the system, until they are accepted
HANDSHAKE = 5  # seconds for that of TLS, whose connections are not counted before its end


class Connection(H11Protocol):
    """A connection that is dropped if its client is slow, or if a new connection needs the room.

    `since` is when the server began to wait for the client: after connecting or the last answer.
    """

    def connection_made(self, transport):
        super().connection_made(transport)
        self.since = self.loop.time()
        if self.are_too_many:
            waiting = [other for other in self.connections if other.waits and other is not self]
            if waiting:
                min(waiting, key=lambda other: other.since).drop()

    def handle_events(self):
        # uvicorn's own count would include requests of dropped connections that still run.
        self.limit_concurrency = 0 if self.are_too_many else None  # 0: uvicorn answers 503
        super().handle_events()

    def on_response_complete(self):
        super().on_response_complete()
        self.since = self.loop.time()

    @property
    def are_too_many(self):
        return len(self.connections) > self.config.limit_concurrency

    @property
    def waits(self):
        """Whether the server waits for the client to send a request, or the rest of one."""
        return self.cycle is None or self.cycle.response_complete or self.cycle.more_body

    def drop(self):
        """Close at once, even if the client has not read the last answer."""
        self.connections.discard(self)
        self.transport.abort()


class HttpServer(uvicorn.Server):
    """Serves an ASGI application outside of the main thread.

    Args:
        application: the ASGI application.
        max_connections: int. For a new connection above this, the one that has been idle for the
            longest is closed; if none is idle, requests on the new one are answered with 503.
        request_timeout: float, seconds that a client has, after it connects or after its last
            answer, to send a whole request, and to read the answer.
        grace: float, seconds that running requests have to end once `should_exit` is set.
        certificate, private_key: paths of PEM files, for HTTPS; or None.
    """

    def __init__(
        self,
        application,
        max_connections,
        request_timeout,
        grace,
        certificate=None,
        private_key=None,
    ):
        super().__init__(
            uvicorn.Config(
                application,
                loop="asyncio",
                http=Connection,
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="error",  # a warning for each bad client would fill the log
                access_log=False,
                server_header=False,
                backlog=ACCEPTED_AT_ONCE,
                limit_concurrency=max_connections,
                timeout_keep_alive=request_timeout,
                timeout_graceful_shutdown=grace,
                ssl_certfile=certificate,
                ssl_keyfile=private_key,
            )
        )
        self.is_ready = threading.Event()

    async def startup(self, sockets=None):
        if self.config.is_ssl:  # uvicorn would wait for a minute
            loop = asyncio.get_running_loop()
            loop.create_server = functools.partial(
                loop.create_server,
                ssl_handshake_timeout=HANDSHAKE,
                ssl_shutdown_timeout=HANDSHAKE,
            )
        try:
            await super().startup(sockets)
            for listener in sockets:
                listener.listen(QUEUED)
        finally:
            self.is_ready.set()

    async def on_tick(self, counter):
        if counter % 10 == 0:  # once a second
            connections = self.server_state.connections
            late = [one for one in connections if one.waits and self._is_late(one)]
            for connection in late:
                connection.drop()
        return await super().on_tick(counter)

    def _is_late(self, connection):
        return connection.loop.time() - connection.since > self.config.timeout_keep_alive


def check_certificate(certificate, private_key):
    """Raise an error unless the files of a certificate and its key belong together, or are None."""
    if certificate is None and private_key is None:
        return
    for name, path in {"certificate": certificate, "private_key": private_key}.items():
        if path is None:
            raise ValueError(f"{name}=None: a certificate and its private key go together.")
        if not Path(path).is_file():
            raise FileNotFoundError(f"{name}={str(path)!r} is not a file.")

    def refuse():  # otherwise it would be asked for on the terminal
        raise ValueError(f"private_key={str(private_key)!r} is encrypted: pass one that is not.")

    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, private_key, refuse)
    except ssl.SSLError as error:
        raise ValueError(
            f"certificate={str(certificate)!r} and private_key={str(private_key)!r} are not a "
            f"certificate and its key, as PEM files ({error.reason or error})."
        ) from error


# === Host names ===
#
# They are checked against the `Host` header of each request, which stops DNS rebinding: a web page
# can make its own domain resolve to this machine, and so reach a server that listens on this
# machine only. Its requests still carry that domain as `Host`.

LOCAL = ("localhost", "127.0.0.1", "::1")


class Hosts:
    """The names of a server, for `header in hosts`.

    They are this machine's names for itself and the host that the server listens on. A server that
    listens on all addresses answers to every address, and to the name of the machine.

    Args:
        host: str, the address or name that the server listens on.
        more: list of str, further names; `*` in them matches any characters.
    """

    def __init__(self, host, more=()):
        if isinstance(more, str):
            raise ValueError(f"allowed_hosts={more!r}: pass a list of names, [{more!r}].")
        self._takes_addresses = host in ("0.0.0.0", "::")
        names = [*LOCAL, host, *more, *([socket.gethostname()] * self._takes_addresses)]
        self._patterns = [name.lower() for name in names]

    def __contains__(self, header):
        try:
            name = urlsplit(f"//{header}").hostname or ""  # without the port, in lower case
        except ValueError:
            return False
        if any(fnmatchcase(name, pattern) for pattern in self._patterns):
            return True
        return self._takes_addresses and _is_address(name)


def _is_address(name):
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
