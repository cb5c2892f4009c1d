"""The state of a model's versions as TF Serving's message, for REST and gRPC."""

from tensorflow_serving.apis import get_model_status_pb2


def response(models, name, version=None):
    """Return the `GetModelStatusResponse` about a model, or about one version of it."""
    message = get_model_status_pb2.GetModelStatusResponse()
    for number, state, error in models.status(name, version):
        status = message.model_version_status.add(
            version=number, state=get_model_status_pb2.ModelVersionStatus.State.Value(state)
        )
        status.status.error_code = error.code.value[0] if error else 0
        status.status.error_message = error.message if error else ""
    return message
