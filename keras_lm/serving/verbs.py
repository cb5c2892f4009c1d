"""What is asked of a model over REST: `:predict`, `:classify` and `:regress`."""

import logging

from keras_lm.serving import inference, json_answers, json_requests
from keras_lm.serving.errors import ServingError, StatusCode, invalid
from keras_lm.serving.inference import DEFAULT_SIGNATURE

logger = logging.getLogger("keras_lm.serving")


def answer(run, models, spec, parse, caller):
    """Answer a POST in a worker thread; `parse` returns the JSON object in its body."""
    try:
        caller.check()  # before it starts
        document = parse()
        with caller.served(), models.lease(**spec) as served:
            _check_rows(served, document)
            return run(served, document)
    except ServingError:
        raise
    except RecursionError as error:
        raise invalid("JSON Parse error: Nested too deeply.") from error
    except MemoryError as error:
        raise ServingError(StatusCode.RESOURCE_EXHAUSTED, "Out of memory.") from error
    except Exception as error:
        logger.exception("A request to %s failed.", spec["name"])
        raise ServingError(StatusCode.INTERNAL, f"{type(error).__name__}: {error}") from error


def _check_rows(served, document):
    """Refuse too many rows before any of them is read."""
    columns = document.get("inputs")
    columns = list(columns.values()) if isinstance(columns, dict) else [columns]
    for rows in (document.get("instances"), document.get("examples"), *columns):
        if isinstance(rows, list):
            served.check_rows(len(rows))


def _predict(served, document):
    name = json_requests.signature_name(document) or DEFAULT_SIGNATURE
    signature = served.signature_defs.get(name)
    if signature is None:
        raise invalid(f'Serving signature name: "{name}" not found in signature def')
    if not signature.inputs:
        raise invalid(f"Failed to get input map for signature: {name}")
    inputs, by_row = json_requests.read_inputs(document, signature)
    return json_answers.write_outputs(served.run(name, inputs), by_row)


def _classify(served, document):
    name = json_requests.signature_name(document)
    examples = json_requests.read_examples(document)
    return json_answers.write_classes(*inference.classify(served, name, examples))


def _regress(served, document):
    name = json_requests.signature_name(document)
    examples = json_requests.read_examples(document)
    return json_answers.write_numbers(inference.regress(served, name, examples))


VERBS = {"predict": _predict, "classify": _classify, "regress": _regress}
