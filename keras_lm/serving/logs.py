"""Logs as JSON, an object a line: what happens, and each request, without its texts and its key.

{"time": "2026-01-31T12:00:00.123Z", "level": "info", "message": "request",
 "request_id": "…", "protocol": "rest", "route": "predict", "model": "film-critic",
 "code": "200", "milliseconds": 12.3}
"""

import datetime
import json
import logging
import re
import traceback
import uuid

REQUEST_ID = re.compile(r"[\w.-]{1,64}", re.ASCII)
requests_logger = logging.getLogger("keras_lm.serving.requests")
requests_logger.disabled = True  # until `write_json`: a server is quiet otherwise


def request_id(given=None):
    """Return the id that a client has given its request, if it is one, or else a new one."""
    return given if given and REQUEST_ID.fullmatch(given) else uuid.uuid4().hex


def log_request(**fields):
    """Log an answered request; `fields` are those of its line."""
    requests_logger.info("request", extra={"fields": fields})


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON.

    Of an exception, it has the type and the places in code, but not the message, which may quote
    a text.
    """

    def format(self, record):
        time = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        line = {
            "time": time.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            kind, _, place = record.exc_info
            frames = traceback.extract_tb(place)
            line["exception"] = kind.__name__
            line["places"] = [f"{one.filename}:{one.lineno} {one.name}" for one in frames]
        return json.dumps(line)


def write_json(stream):
    """Write the logs of the server to a stream, as JSON, from the level INFO on."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    logger = logging.getLogger("keras_lm")
    logger.handlers = [handler]
    logger.setLevel(logging.INFO)
    logger.propagate = False
    requests_logger.disabled = False
