"""Export as a `.tflite`: for LiteRT's interpreter, on phones and elsewhere."""

import contextlib
import errno
import math
import os
import shutil
import tempfile
import zipfile

import numpy as np
from tensorflow.lite.python import schema_py_generated as schema

from keras_lm.export.saved_model import layer_path, module_of, names_of_layers, stored_parts
from keras_lm.export.tflite_metadata import with_int8_rows
from keras_lm.layers.embedding_hook import token_embedding_of
from keras_lm.litert import open_interpreter
from keras_lm.presets import saving
from keras_lm.tensorflow import tf
from keras_lm.utils import files
from keras_lm.utils.files import naming_a_full_disk, on_disk, replacing
from keras_lm.utils.quiet_stderr import quiet

# What `tensorflow_text.core.pybinds.tflite_registrar.SELECT_TFTEXT_OPS` 2.20 registers.
TEXT_OPERATIONS = {
    "FastBertNormalize",
    "FastWordpieceTokenizeWithOffsets",
    "RaggedTensorToTensor",
    "SentenceFragmentsV2",
    "TFText>ByteSplitByOffsets",
    "TFText>ByteSplitWithOffsets",
    "TFText>FastSentencepieceDetokenize",
    "TFText>FastSentencepieceTokenize",
    "TFText>FastWordpieceDetokenize",
    "TFText>NgramsStringJoin",
    "TFText>RoundRobinGenerateMasks",
    "TFText>RoundRobinTrim",
    "TFText>Utf8Binarize",
    "TFText>WhitespaceTokenizeWithOffsetsV2",
}


def export_tflite(task, path, weights, freeze, verify, in_bytes=False):
    """Write a task as a `.tflite` that takes strings; the file is replaced in one step.

    The signature `serving_default` takes `text`, a string tensor [None], and with `text_pair=True`
    also `text_pair`; it returns the dict of `task.answer_lite`. The file only needs LiteRT's own
    operations and TF Text's (no Flex).

    With `in_bytes`, the file only needs LiteRT's own operations. It takes `text`, uint8 [None], the
    UTF-8 of all texts one after another, and `text_ends`, int32 [None], where each ends; so do
    `text_pair` and all other columns. (Ends of `choices` are [None, None].) Answers that are parts
    of texts are returned in the same way, as are the `tokens` and `text` of a `MaskedLM`. What
    follows the last end does not count.

    With `in_bytes`, a `CausalLM` or `Seq2SeqLM` has the signatures `generate` and `sample`, with
    the whole loop, see `GenerationSignatures.generate_lite` and `sample_lite`, and `next_token`.
    Otherwise it is exported as one step, for clients with a decoding loop of their own. Its
    signature `next_token` is that of a SavedModel, except that the cache must have free slots for
    the new tokens, since it does not grow.
    `tokenize`, if the tokenizer has `tokenize_lite`, takes `prompt`, a string tensor [None], and
    returns `token_ids` and `padding_mask` (B, S); an empty prompt has no tokens there, unless all
    prompts begin with the bos token.

    Rows are padded as by the task. If a model does not convert with a variable length, every row
    has `sequence_length` columns, which is slower for short texts.

    With `weights="int8"`, LiteRT multiplies matrices in int8, and rounds activations by their range
    in each call; with `"float16"` it widens weights before they are used.

    A ValueError is raised if the task computes in half precision, one of its operations has no
    kernel in LiteRT, or, except for a `CausalLM`, its tokenizer has no `tokenize_lite`. A
    `MaskedLM` needs `in_bytes`: it joins pieces of its `text` and applies regular expressions, for
    which neither LiteRT nor TF Text has kernels of strings (`UnsortedSegmentJoin`,
    `StaticRegexReplace`, `StringStrip`).
    """
    offer, allowed = (task.byte_signatures, ()) if in_bytes else (task.signatures, TEXT_OPERATIONS)
    return write(task, path, weights, freeze, verify, offer, with_card=True, allowed=allowed)


def write(
    task,
    path,
    weights,
    freeze,
    verify,
    offer,
    finish=bytes,
    with_card=False,
    allowed=TEXT_OPERATIONS,
):
    """Write the first of an offer's functions that works; `finish` changes the flatbuffer.

    The file may have the custom operations in `allowed`.

    A card goes to the end of the file as an archive, which interpreters pass over: it stays with
    the file when that is copied, and `unzip -p model.tflite README.md` prints it.
    """
    path = on_disk(path)
    if freeze:
        raise ValueError(
            "freeze=True: leave it out, as the weights of a .tflite are always constants."
        )
    if path.is_dir():
        raise IsADirectoryError(
            f"path={str(path)!r} is a folder: pass a file, such as model.tflite."
        )
    offer.texts()  # raises if the task cannot take strings
    compute_dtype = task.backbone.dtype_policy.compute_dtype
    if compute_dtype != "float32":
        raise ValueError(
            f"the task computes in {compute_dtype}, for which LiteRT has no kernels: save it with "
            "save_to_preset and load it with from_preset(folder, dtype='float32')."
        )
    with naming_a_full_disk(tempfile.gettempdir()):
        model = finish(_working_model(task, weights, offer, allowed))
    with replacing(path) as new:
        new.write_bytes(model)
        if with_card:
            with zipfile.ZipFile(new, "a") as archive:
                # (A `ZipInfo` has a fixed date.)
                archive.writestr(
                    zipfile.ZipInfo(saving.CARD), saving.card_of_tflite(task, not allowed)
                )
                archive.writestr(zipfile.ZipInfo(files.CHECKSUMS), files.end_of(model))
        verify(new)
    return path


def _working_model(task, weights, offer, allowed=TEXT_OPERATIONS):
    """Return the flatbuffer of the first of the offer's alternatives that works."""
    with _tables_in(weights, task):
        for functions in offer.lite_functions():
            model, problem = _convert(functions, weights)
            problem = (
                problem or _missing(model, task, allowed) or _failure(model, offer.lite_requests())
            )
            if not problem:
                return model
    _require_room(task)
    raise ValueError(
        f"{type(task).__name__} does not run in LiteRT: {problem}. Export as a SavedModel instead."
    )


def _tables_in(weights, task):
    """Return a context in which a model that writes reads its words in int8, if that is asked for.

    The converter's own int8 table has one scale, and LiteRT widens it before words are looked up.
    """
    embedding = token_embedding_of(task.backbone)
    if weights != "int8" or embedding is None or task.signatures.answers_in_lite:
        return contextlib.nullcontext()
    return _in_int8(embedding)


@contextlib.contextmanager
def _in_int8(embedding):
    """A context for exports in which an embedding is computed from an int8 table (V, D).

    Each row has a scale. The layer's own table holds the same rounded numbers meanwhile, so that a
    product with it, rounded in the same way, has the same int8 table.
    """
    original, table = embedding.call, embedding.embeddings.numpy()
    scales = np.abs(table).max(axis=1, keepdims=True) / 127
    scales[scales == 0] = 1
    rounded = np.round(table / scales).astype("int8")
    stored = [tf.Variable(part, trainable=False) for part in (rounded, scales)]

    def call(token_ids, *args, **kwargs):
        if args or kwargs.get("reverse"):
            return original(token_ids, *args, **kwargs)
        rows, scales = (tf.gather(part, token_ids) for part in stored)
        return tf.cast(rows, tf.float32) * scales

    embedding.call = call
    embedding.embeddings.assign(rounded * scales)
    try:
        yield
    finally:
        del embedding.call
        embedding.embeddings.assign(table)


def _require_room(task):
    """Raise an OSError if there is no room for temporary files.

    The converter writes the weights to them, and silently drops those that it cannot write.
    """
    with tempfile.TemporaryFile() as file:
        file.write(bytes(2**20))  # fails if a quota of the user or process is used up
    needed = 8 * sum(math.prod(weight.shape) for weight in task.weights)
    if shutil.disk_usage(tempfile.gettempdir()).free < needed:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _convert(functions, weights):
    """Return (flatbuffer, None), or (None, error message)."""
    # Given a Keras model, the converter loses variables, and the answers are NaN.
    module = module_of(*functions.values())
    model, problem = _from_module(functions, module, weights)
    parts = stored_parts(module)
    return (with_int8_rows(model, parts.values()), None) if parts and model else (model, problem)


def _from_module(functions, module, weights):
    if set(functions) == {"serving_default"}:
        answer = list(functions.values())
        return _converted(tf.lite.TFLiteConverter.from_concrete_functions(answer, module), weights)
    with tempfile.TemporaryDirectory() as folder:  # only from a folder signatures keep their names
        tf.saved_model.save(module, folder, signatures=functions)
        return _converted(
            tf.lite.TFLiteConverter.from_saved_model(folder, signature_keys=[*functions]), weights
        )


def _converted(converter, weights):
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
    converter.allow_custom_ops = True
    if weights != "float32":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]  # int8 with dynamic ranges …
    if weights == "float16":
        converter.target_spec.supported_types = [tf.float16]  # … or float16
    try:
        with quiet():  # hides its progress, and its warnings that TF Text's operations are missing
            return converter.convert(), None
    except Exception as error:  # the converter raises bare Exceptions, too
        return None, next(iter(str(error).splitlines()), type(error).__name__)


def _missing(model, task, allowed=TEXT_OPERATIONS):
    """Describe the operations without a kernel; the converter lets all pass as custom ops."""
    names = names_of_layers(task)
    missing = {}
    for operation, tensor in _custom_operations(model):
        if operation not in allowed:
            scopes = tensor.split(";")[0].split("/")[:-1]
            missing[f"there is no kernel for {operation}, in {layer_path(scopes, names)}"] = None
    more = [f"and {len(missing) - 3} more"] if len(missing) > 3 else []
    return "; ".join([*missing][:3] + more)


def _custom_operations(model):
    """Yield (operation, name of its first output) for operations that are not LiteRT's own."""
    root = schema.Model.GetRootAs(model, 0)
    for graph in map(root.Subgraphs, range(root.SubgraphsLength())):
        for operator in map(graph.Operators, range(graph.OperatorsLength())):
            code = root.OperatorCodes(operator.OpcodeIndex())
            if code.BuiltinCode() == schema.BuiltinOperator.CUSTOM:
                yield code.CustomCode().decode(), graph.Tensors(operator.Outputs(0)).Name().decode()


def _failure(model, requests):
    """Run the model once and return the error of its kernels; None without an interpreter."""
    try:
        with quiet():
            interpreter = open_interpreter(bytes(model))
            for signature, inputs in requests:
                interpreter.get_signature_runner(signature)(**inputs)
    except ImportError:
        return None
    except (RuntimeError, ValueError) as error:
        return next(iter(str(error).splitlines()), type(error).__name__)
    return None
