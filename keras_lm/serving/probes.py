"""What operators ask: whether the server lives and is ready, its measures, and what it answers."""

import json

from starlette.responses import HTMLResponse, Response

from keras_lm.serving import monitoring, openapi


def live():
    """Return the answer of a server that lives."""
    return Response("The server answers.\n", media_type="text/plain")


def _ready(models, monitor):
    missing = monitoring.not_ready(models)
    if missing:
        return Response(f"No version answers of {missing}.\n", 503, media_type="text/plain")
    return Response("All models answer.\n", media_type="text/plain")


def _metrics(models, monitor):
    body, content_type = monitor.write()
    return Response(body, headers={"Content-Type": content_type})


def _openapi(models, monitor):
    text = json.dumps(openapi.document(models), indent=1)
    return Response(text, media_type="application/json")


def _page(models, monitor):
    return HTMLResponse(openapi.page(openapi.document(models)))


# Each takes `Models` and the `Monitor`, and may wait for them.
PROBES = {"/readyz": _ready, "/metrics": _metrics}
PROBES |= {"/openapi.json": _openapi, "/docs": _page}
