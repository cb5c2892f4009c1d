"""REST's connections: uvicorn, and an end for clients that keep others waiting."""

import threading

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

# asyncio accepts so many connections before it looks at any of them, and writes as many errors a
# second if the process may open no more files.
ACCEPTED_AT_ONCE = 8
QUEUED = 1024  # by the system, until they are accepted


class Connection(H11Protocol):
    """A connection that is dropped if its client is slow, or if another needs its place.

    `since` is when the client's turn began: the time of the connection or of its last answer.
    """

    def connection_made(self, transport):
        super().connection_made(transport)
        self.since = self.loop.time()
        if self.are_too_many:
            waiting = [other for other in self.connections if other.waits and other is not self]
            if waiting:
                min(waiting, key=lambda other: other.since).drop()

    def handle_events(self):
        # uvicorn's own count would include requests of dropped connections that have yet to end.
        self.limit_concurrency = 0 if self.are_too_many else None  # 0: it answers 503
        super().handle_events()

    def on_response_complete(self):
        super().on_response_complete()
        self.since = self.loop.time()

    @property
    def are_too_many(self):
        return len(self.connections) > self.config.limit_concurrency

    @property
    def waits(self):
        """Whether the server waits for its client, to send a request or the rest of one."""
        return self.cycle is None or self.cycle.response_complete or self.cycle.more_body

    def drop(self):
        """Close without a word, also if what was written before has not been read."""
        self.connections.discard(self)
        self.transport.abort()


class HttpServer(uvicorn.Server):
    """Serves an ASGI application from another thread than the main one.

    Args:
        application: the ASGI application.
        max_connections: int. If there are more, the one that has waited for its client for the
            longest is closed; if none waits, requests on the new one are answered by 503.
        request_timeout: float, seconds in which a client has to send the whole of a request, from
            its connection or its last answer on, and to take the answer.
        grace: float, seconds in which requests may end after `should_exit` was set.
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
