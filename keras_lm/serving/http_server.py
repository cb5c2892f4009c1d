"""The HTTP server for REST: uvicorn, with limits on slow clients."""

import threading

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

# asyncio accepts up to this many connections before it serves any of them, and logs as many errors
# a second if the process cannot open more files.
ACCEPTED_AT_ONCE = 8
QUEUED = 1024  # by the system, until they are accepted


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
    """

    def __init__(self, application, max_connections, request_timeout, grace):
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
            )
        )
        self.is_ready = threading.Event()

    async def startup(self, sockets=None):
        try:
            await super().startup(sockets)
            for each in sockets:
                each.listen(QUEUED)
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
