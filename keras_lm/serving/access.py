"""Who may ask a server: those who have a key, and how often. For REST, and for gRPC."""

import grpc

from keras_lm.serving.errors import ServingError, StatusCode

# What anyone may ask, since it says nothing about models: whether the server lives and is ready,
# and the page, which then asks for the key.
OPEN_PATHS = ("/", "/healthz", "/readyz", "/v2/health/live", "/v2/health/ready")
OPEN_METHODS = tuple(f"/inference.GRPCInferenceService/Server{what}" for what in ("Live", "Ready"))


class Access(grpc.ServerInterceptor):
    """Lets requests pass, of REST by `check`, of gRPC as an interceptor.

    Args:
        keys: `keys.Keys`, or None to let everyone pass.
        monitor: `Monitor`, which counts refused calls of gRPC.
    """

    def __init__(self, keys, monitor):
        self.keys = keys
        self._monitor = monitor

    @property
    def needs_key(self):
        """Whether requests have to have a key."""
        return self.keys is not None

    def check(self, headers):
        """Raise a `ServingError` unless a request has a key; `headers` are its `Authorization`."""
        if self.keys is None:
            return
        if len(headers) > 1:
            message = "There are several Authorization headers: send one."
        elif not headers:
            message = "This server asks for a key: send the header Authorization: Bearer KEY."
        elif self.keys.identify(headers[0]) is None:
            message = "The key in the header Authorization is not one of this server's."
        else:
            return
        raise ServingError(StatusCode.UNAUTHENTICATED, message)

    def intercept_service(self, continuation, handler_call_details):
        handler = continuation(handler_call_details)
        if handler is None or handler_call_details.method in OPEN_METHODS:
            return handler
        metadata = handler_call_details.invocation_metadata or ()
        try:
            self.check([value for name, value in metadata if name == "authorization"])
        except ServingError as error:
            return self._refusing(error.code, error.message)
        return handler

    def _refusing(self, code, message):
        def refuse(requests, context):
            self._monitor.answered("grpc", "other", "", code.name, 0)
            context.abort(code, message)

        # A stream's handler is called before a message has arrived, which nobody reads.
        return grpc.stream_unary_rpc_method_handler(refuse)
