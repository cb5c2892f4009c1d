"""Who may ask a server: those who have a key, and how often. For REST, and for gRPC."""

import math
import threading
import time
from ipaddress import ip_address, ip_network

import grpc

from keras_lm.serving.errors import ServingError, StatusCode

# What anyone may ask, since it says nothing about models: whether the server lives and is ready,
# and the page, which then asks for the key.
OPEN_PATHS = ("/", "/healthz", "/readyz", "/v2/health/live", "/v2/health/ready")
OPEN_METHODS = tuple(f"/inference.GRPCInferenceService/Server{what}" for what in ("Live", "Ready"))
MOST_CLIENTS = 10_000  # of whom a server remembers when they have asked
ROUNDING = 1e-6


class Rate:
    """How often each client may ask; thread-safe.

    A client that has not asked for a minute may ask for the whole number at once.

    Args:
        per_minute: int.
    """

    def __init__(self, per_minute):
        self._most = per_minute
        self._clients = {}  # client → the requests that it had left, and when; the latest is last
        self._lock = threading.Lock()

    def count(self, client):
        """Count a request of a client; raise a `ServingError` if it has asked too often."""
        now = time.monotonic()
        with self._lock:
            left, since = self._clients.pop(client, (self._most, now))
            left = min(left + (now - since) * self._most / 60, self._most)
            is_fine = left >= 1 - ROUNDING
            self._clients[client] = (left - is_fine, now)
            if len(self._clients) > MOST_CLIENTS:
                del self._clients[next(iter(self._clients))]
        if not is_fine:
            seconds = math.ceil((1 - left) * 60 / self._most - ROUNDING)
            raise ServingError(
                StatusCode.RESOURCE_EXHAUSTED,
                f"The limit of requests a minute, {self._most} for each client, is reached: try "
                f"again in {seconds} s.",
                retry_after=seconds,
            )


class Access(grpc.ServerInterceptor):
    """Lets requests pass, of REST by `check`, of gRPC as the interceptor outside of `Arrivals`.

    Args:
        keys: `keys.Keys`, or None to let everyone pass.
        requests_per_minute: int, for each key, or without keys for each address; None for any.
        monitor: `Monitor`, which counts refused calls of gRPC.
    """

    def __init__(self, keys, requests_per_minute, monitor):
        self.keys = keys
        self._rate = None if requests_per_minute is None else Rate(requests_per_minute)
        self._monitor = monitor

    @property
    def needs_key(self):
        """Whether requests have to have a key."""
        return self.keys is not None

    def check(self, headers, address):
        """Raise a `ServingError` unless a request has a key, and its client asks seldom enough.

        Args:
            headers: list of str, its `Authorization`.
            address: str, of the client.
        """
        client = self._identify(headers) or network_of(address)
        if self._rate is not None:
            self._rate.count(client)

    def _identify(self, headers):
        """Return the digest of the key in a request's headers; None if none is needed."""
        if self.keys is None:
            return None
        if len(headers) > 1:
            message = "There are several Authorization headers: send one."
        elif not headers:
            message = "This server asks for a key: send the header Authorization: Bearer KEY."
        elif (digest := self.keys.identify(headers[0])) is None:
            message = "The key in the header Authorization is not one of this server's."
        else:
            return digest
        raise ServingError(StatusCode.UNAUTHENTICATED, message)

    def intercept_service(self, continuation, handler_call_details):
        handler = continuation(handler_call_details)
        is_open = handler_call_details.method in OPEN_METHODS
        if handler is None or is_open or (self.keys is None and self._rate is None):
            return handler
        metadata = handler_call_details.invocation_metadata or ()
        headers = [value for name, value in metadata if name == "authorization"]

        def check(requests, context):
            try:
                # "ipv4:127.0.0.1:1234"; an IPv6 address is in brackets, which are %5B and %5D
                self.check(headers, context.peer().partition(":")[2].rpartition(":")[0])
            except ServingError as error:
                self._monitor.answered("grpc", "other", "", error.code.name, 0)
                context.abort(error.code, error.message)
            return handler.stream_unary(requests, context)

        # A stream's handler is called before a message has arrived, which is not read if refused.
        return grpc.stream_unary_rpc_method_handler(
            check, handler.request_deserializer, handler.response_serializer
        )


def network_of(address):
    """Return the address of a client, or its network of 64 bits, all of which may be its own."""
    try:
        parsed = ip_address(address.removeprefix("%5B").removesuffix("%5D").strip("[]"))
    except ValueError:
        return address
    return str(parsed if parsed.version == 4 else ip_network((parsed, 64), strict=False))
