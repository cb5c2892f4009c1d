"""Serve exported models from Python with TensorFlow Serving's protocols, and ask either server.

`Server` is for development: it only needs Python packages. For production, the same folders
go to TensorFlow Serving's `tensorflow_model_server`, and clients see no difference.
"""

from keras_lm.utils.optional_dependencies import packages, require

__all__ = ["Client", "Server", "open_predictor"]


def __getattr__(name):
    # The client does without what a server needs.
    if name == "Client":
        from keras_lm.serving.client import Client

        return Client
    if name == "Server":
        for package in packages("serving"):
            require(package, "the embedded server")
        from keras_lm.serving.server import Server

        return Server
    if name == "open_predictor":
        from keras_lm.serving.predictors import open_predictor

        return open_predictor
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
