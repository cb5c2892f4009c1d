"""Export as a SavedModel, for TensorFlow, TF Serving and other programs that read its format."""

import contextlib
import errno
import os
import re
from pathlib import Path

from google.protobuf import text_format
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow.python.saved_model import fingerprinting_utils
from tensorflow_serving.apis import prediction_log_pb2
from tensorflow_serving.config import model_server_config_pb2

from keras_lm.layers.tensorflow import sharing_traces
from keras_lm.presets import saving
from keras_lm.tensorflow import tf
from keras_lm.tokenizers.strings import has_text_operations
from keras_lm.utils import files
from keras_lm.utils.files import on_disk, replacing, write_sums

METHODS = {
    "classify": tf.saved_model.CLASSIFY_METHOD_NAME,
    "regress": tf.saved_model.REGRESS_METHOD_NAME,
}


def export_saved_model(task, path, weights, freeze, verify, attention=False, operations=None):
    """Write the next numbered version of a task as a SavedModel, ready for TF Serving.

    The signatures, for B texts of S columns, in which strings are padded with empty ones:

    - `serving_default` takes `text`, a string tensor [None], and with `text_pair=True` also
      `text_pair`. A `MultipleChoice` takes `text` and `choices` [None, None], a row of choices per
      text; a `QuestionAnswerer` takes `question` and `context`. It returns the dict of
      `task.answer`.
    - `words`, of a `TokenClassifier`, takes `text` [None, None], the words of each text, and
      returns the same without `start` and `end`.
    - `tokenize` takes the same as `serving_default` and returns what the model reads, including
      special tokens: `tokens` (B, S), strings, and `token_ids` (B, S), int32. For a
      `QuestionAnswerer` it returns a row for each window of each context.
    - `mentions`, of a task with an `EntityTokenizer`, takes `text`, a string tensor [None], and
      returns the entities that each text mentions, (B, M) each: `text`, what it calls them, and
      `entities`, their ids, strings; `start` and `end`, int32, in characters.
    - `explain`, of a `GraphChoice` that holds its graph, takes the same as `serving_default`, and
      also returns the concepts and paths that each choice was scored by, see `GraphSignatures`.
    - `tokens` takes the packed inputs of the task, int32 [None, None] each ([None, None, None] for
      choices), and returns its raw outputs. A tensor is named `logits` (`embedding` from a
      `FeatureExtractor`).
    - `classify`, of a `TextClassifier`, and `regress`, of a `TextRegressor`, are for TF Serving's
      methods of these names. Both take `inputs`, a string tensor [None] of serialized `tf.Example`s
      with the features `text` and optionally `text_pair`, one string each. `classify` returns
      `classes` and `scores`, (B, classes) each, `regress` returns `outputs` (B,).

    - `attention`, if it is asked for, takes the same as `serving_default` (a `CausalLM`: `text`; a
      `Seq2SeqLM`: also `labels`, the texts written for them) and returns what each token reads, in
      L layers of N heads, where S tokens read T: `self_tokens` (B, S) and `self_attended` (B, T),
      strings; `self_sizes` (B, 4), int32: L, N, S and T; and `self_bytes` (B,), strings of L·N·S·T
      bytes, round(255 · √probability). `(numpy.frombuffer(b, "uint8").reshape(sizes) / 255)**2`
      are the probabilities. An encoder-decoder has the same of its `encoder` and `decoder`, and of
      `cross`, in which the target reads the source. A `QuestionAnswerer` returns a row for each
      window. Texts times their tokens squared may be 2**20 at most.

    A `MultiTask` has the signatures of each task under the task's name: NAME for `serving_default`,
    NAME_tokens and so on. An `Ensemble` has neither `tokenize` nor `tokens`.

    A `CausalLM` has `tokens` and these, for B prompts, L blocks, N heads of width H, T slots in a
    cache and V entries in the vocabulary:

    - `serving_default` takes `prompt`, a string tensor [None], and returns the dict of
      `task.answer`: `text` (B,), the greedy continuations, `num_tokens` (B,), the number of
      generated tokens, and `num_prompt_tokens` (B,).
    - `generate` takes `prompt` and the options of `CausalLM.generate`, each a single value or one
      per prompt: `max_new_tokens`, `temperature`, `top_k`, `top_p`, `repetition_penalty`,
      `no_repeat_ngram_size`, `seed` (-1 for a fresh one) and `stop`, a string to stop before (""
      for none). All but `prompt` have defaults in the signature: TF Serving fills them in over
      gRPC, while its REST API requires all of them.
    - `score` takes `text` and returns the dict of `CausalLM.score`.
    - `next_token` is one step, for clients with a decoding loop of their own. It takes `token_ids`
      and `padding_mask` (B, S), int32, and a cache: `cache_keys` and `cache_values`
      (B, L, N, T, H), float32, `cache_padding_mask` (B, T) and `cache_length` (B,), int32; or the
      `states_…` of a recurrent model. It returns the `logits` (B, V) after the last real token of
      each row, and the cache with the new tokens, grown if it had no free slots. Padding and cache
      are empty by default.
    - `tokenize` takes `prompt` and returns `tokens`, `token_ids` and `padding_mask` (B, S), the
      model's input; `detokenize` takes the last two and returns `text` (B,).

    With `operations="tensorflow"` there are `serving_default`, `classify` or `regress`, and
    `tokens` alone, of operations that TensorFlow itself has: programs need no TensorFlow Text.

    Smaller `weights` reduce the files only: they are widened once, on loading, which needs memory
    for both, and calls take as long as with float32.

    With `freeze`, the weights are constants of the graph, which TensorFlow packs once for its
    matrix products, and the only signatures are `serving_default`, `tokenize` and `classify` or
    `regress`. With int8 weights, the matrices of `Dense` layers are int8 constants and multiplied
    in int8 (`keras_lm.layers.tensorflow_products`); all other weights, such as embeddings, are
    stored as int8 and widened. With bfloat16 weights, these matrices are bfloat16 constants,
    multiplied in bfloat16 (`products`, beside it), and others are stored as float16.

    Half precision is served as float32. An empty batch returns empty outputs, except that
    `MaskedLM` refuses it. The folder contains each weight once, and no operations of Python, XLA or
    training. It includes `assets.extra/tf_serving_warmup_requests` and `batching_params.pbtxt`,
    which TF Serving reads, and for a `CausalLM` also `assets.extra/generation.json`, which the
    embedded server needs to stream; and a card, `README.md`. A `models.config` to start TF Serving
    with is written next to the versions if there is none. Arguments, result and errors: see
    `export`.
    """
    has_few = operations == "tensorflow"
    offer = task.plain_signatures if has_few else task.signatures
    is_plain = has_few or not has_text_operations()
    offer.texts()  # raises, before anything is written, if the task cannot take strings
    name = model_name(on_disk(path))

    def write(folder):
        if freeze:
            functions = offer.frozen_functions(weights)
        else:
            with sharing_traces():
                functions = offer.functions()
        if attention:
            functions["attention"] = offer.attention()
        module = module_of(*functions.values(), lookups=() if has_few else task.lookups)
        parts = stored_parts(module)
        if weights != "float32" or parts:
            from keras_lm.export import stored_weights  # by names that TensorFlow keeps private

            stored_weights.shrink(module, weights, parts)
        tf.saved_model.save(module, str(folder), signatures=functions)
        methods = offer.methods()
        saved_model = _amend(folder, methods, offer.defaults())
        for meta_graph in saved_model.meta_graphs:
            check_operations(meta_graph, names_of_layers(task), not is_plain)
        requests = offer.requests(WARMUP_SIZES)
        logs = [warmup_log(name, *request, methods.get(request[0])) for request in requests]
        write_warmup(folder, logs)
        write_batching(folder)
        (folder / saving.CARD).write_text(saving.card_of_export(task, is_plain), encoding="utf-8")
        for file, content in offer.files().items():
            (folder / "assets.extra" / file).write_text(content, encoding="utf-8")
        write_sums(folder, _summed(folder))
        verify(folder)

    version = write_version(path, write)
    write_models_config(version.parent, name)
    return version


def _summed(folder):
    """Return the files of a SavedModel that have checksums: TensorFlow compares the weights."""
    paths = [path for path in folder.rglob("*") if path.is_file() and path.name != saving.CARD]
    paths = [path for path in paths if not path.name.startswith("variables.data")]
    return [path.relative_to(folder).as_posix() for path in paths]


def module_of(*functions, lookups=()):
    """Return a `tf.Module` that tracks only what traced functions read.

    A Keras object would also track optimizer slots, seeds, and a second copy of the weights. The
    tables in `lookups`, and in the tokenizers there, are created again when the module is loaded.
    """
    module = tf.Module()
    # Not the tokenizers: TensorFlow evaluates each property of what it saves.
    module.tables = [table for lookup in lookups for table in _tables(lookup)]
    # `variables` also has those whose values were only read during tracing.
    read = {id(tensor) for function in functions for tensor in function.captured_inputs}
    variables = {
        id(v): v for function in functions for v in function.variables if id(v.handle) in read
    }
    module.weights = {}
    for variable in sorted(variables.values(), key=lambda v: v.name):
        name = variable.name.partition(":")[0]
        while name in module.weights:  # two layers may share a name
            name += "_"
        module.weights[name] = variable
    return module


def stored_parts(module):
    """Return name → int8 rows and their scales, of a module's variables that are stored so."""
    parts = {name: getattr(variable, "stored", None) for name, variable in module.weights.items()}
    return {name: stored for name, stored in parts.items() if stored}


def _tables(lookup):
    """Return the tables and models that a table or a `tf.Module` holds."""
    kind = tf.saved_model.experimental.TrackableResource
    if isinstance(lookup, kind):
        return [lookup]
    return lookup._flatten(predicate=lambda part: isinstance(part, kind))


def _amend(folder, methods, defaults):
    """Set the methods and defaults of signatures, which TensorFlow does not; return the proto.

    Args:
        folder: path of the SavedModel.
        methods, defaults: dicts of a signature's name → its method, and its dict of default arrays.
    """
    file = folder / "saved_model.pb"
    saved_model = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    for meta_graph in saved_model.meta_graphs:
        for signature, method in methods.items():
            meta_graph.signature_def[signature].method_name = METHODS[method]
        for signature, arrays in defaults.items():
            for name, array in arrays.items():
                default = meta_graph.signature_def[signature].defaults[name]
                default.CopyFrom(tf.make_tensor_proto(array))
    file.write_bytes(saved_model.SerializeToString(deterministic=True))
    fingerprinting_utils.write_fingerprint(str(folder))  # of the file as it is now
    return saved_model


# Errors of a rename whose target another process has created meanwhile.
TAKEN = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR)


def write_version(folder, write):
    """Create the next numbered version in a folder, atomically, and return its `Path`.

    `write` creates a folder at a hidden `Path`, which is renamed once complete, or removed if
    anything fails. Several processes may export at once: each gets its own number.
    """
    folder = on_disk(folder)
    made = _make_folders(folder)
    try:
        with files.hidden(folder, "exporting") as beside:
            write(beside / "version")
            files.sync(beside / "version")
            version = _publish(beside / "version", folder)
            files.sync_one(folder)
            return version
    finally:
        for parent in made:
            with contextlib.suppress(OSError):  # not empty: it worked, or is used by others
                parent.rmdir()


def _make_folders(folder):
    """Create a folder and its parents; return the new ones, the deepest first."""
    missing = []
    for parent in (folder, *folder.parents):
        if parent.is_dir():
            break
        if parent.exists() and not parent.is_dir():  # another process may have created it
            raise NotADirectoryError(
                f"path={str(folder)!r}: {str(parent)!r} is a file. Pass a folder for the versions "
                "of the model."
            )
        missing.append(parent)
    folder.mkdir(parents=True, exist_ok=True)
    return missing


def _publish(version, folder):
    while True:
        numbers = [number for number in files.numbered(folder) if number < files.LARGEST_VERSION]
        target = folder / str(max(numbers, default=0) + 1)
        try:
            version.rename(target)
            return target
        except OSError as error:
            if error.errno not in TAKEN:
                raise


# === Operations: a SavedModel has those of TF Serving's stock binaries from 2.18 on ===

# Patterns of TensorFlow's own operations that cannot be served → why; the first match counts.
FORBIDDEN = {
    r"PyFunc": "it calls Python, which TF Serving does not have: write it in TensorFlow operations",
    r"^_?Xla|Xla(Split|Concat)": "it needs XLA, which is off in TF Serving",
    r"TPU|Tpu": "it runs on TPUs only, which TF Serving does not have",
    r"^(Resource)?(Sparse)?(Accumulator)?Apply[A-Z]": "it is part of training",
}
COMPILED = "_XlaMustCompile"  # the attribute that jit_compile=True leaves

# TF Text 2.12, as linked into TF Serving 2.18 and 2.19. That of 2.20 has three more, which no
# export needs: RoundRobinTrim, RoundRobinGenerateMasks and Utf8Binarize.
TEXT_OPERATIONS = frozenset(
    [
        "CaseFoldUTF8",
        "ConstrainedSequence",
        "FastBertNormalize",
        "FastWordpieceTokenizeWithOffsets",
        "FindSourceOffsets",
        "MaxSpanningTree",
        "NormalizeUTF8",
        "NormalizeUTF8WithOffsetsMap",
        "PhraseTokenize",
        "RegexSplitWithOffsets",
        "RougeL",
        "SentenceFragments",
        "SentenceFragmentsV2",
        "SentencepieceDetokenizeOp",
        "SentencepieceIdToStringOp",
        "SentencepieceOp",
        "SentencepieceStringToIdOp",
        "SentencepieceTokenizeOp",
        "SentencepieceTokenizeWithOffsetsOp",
        "SentencepieceVocabSizeOp",
        "SplitMergeTokenizeWithOffsets",
        "TFText>BoiseTagsToOffsets",
        "TFText>ByteSplitByOffsets",
        "TFText>ByteSplitWithOffsets",
        "TFText>FastSentencepieceDetokenize",
        "TFText>FastSentencepieceTokenize",
        "TFText>FastWordpieceDetokenize",
        "TFText>NgramsStringJoin",
        "TFText>OffsetsToBoiseTags",
        "TFText>PhraseDetokenize",
        "TFText>WhitespaceTokenizeWithOffsetsV2",
        "TokenizerFromLogits",
        "UnicodeScriptTokenizeWithOffsets",
        "WhitespaceTokenizeWithOffsets",
        "WordpieceTokenizeWithOffsets",
    ]
)


def check_operations(meta_graph, layer_names=(), has_text=True):
    """Raise a ValueError if TF Serving's stock binary lacks an operation of a graph.

    It may not have those of TensorFlow Text unless `has_text`.

    `layer_names` distinguish the numbers in layer names from those that TensorFlow appends.
    """
    graph = _Graph(meta_graph.graph_def)
    problems = {}
    for function, node in graph.nodes():
        reason = _reason(node, graph)
        if node.op in TEXT_OPERATIONS and not has_text:
            reason = f"operation {node.op}", "it is one of TensorFlow Text, not of TensorFlow"
        if reason:
            where = layer_path(graph.scopes(function, node), layer_names)
            problems[f"{reason[0]} in {where}: {reason[1]}"] = None  # an ordered set
    if problems:
        raise ValueError("the model cannot be served. " + "; ".join(problems) + ".")


def _reason(node, graph):
    """Return (what, why) if a node cannot be served, else None."""
    functions = [graph.functions[name] for name in graph.called(node)]
    if any(COMPILED in part.attr and part.attr[COMPILED].b for part in (node, *functions)):
        return "jit_compile=True", "it needs XLA, which is off in TF Serving: leave it out"
    if node.op in graph.functions or node.op in TEXT_OPERATIONS:
        return None
    for pattern, why in FORBIDDEN.items():
        if re.search(pattern, node.op):
            return f"operation {node.op}", why
    if not hasattr(tf.raw_ops, node.op):
        why = "TF Serving 2.18 only has the operations of TensorFlow and TensorFlow Text 2.12"
        return f"operation {node.op}", why
    return None


class _Graph:
    """A graph and the functions that it calls."""

    def __init__(self, graph_def):
        self.main = graph_def.node
        self.functions = {f.signature.name: f for f in graph_def.library.function}
        self._callers = {}  # function → (function or None, node) of one call
        for function, node in self.nodes():
            for name in self.called(node):
                self._callers.setdefault(name, (function, node))

    def nodes(self):
        """Yield (name of the function or None, node) for all nodes."""
        for node in self.main:
            yield None, node
        for name, function in self.functions.items():
            for node in function.node_def:
                yield name, node

    def called(self, node):
        names = [node.op]
        for value in node.attr.values():
            names += [value.func.name, *(f.name for f in value.list.func)]
        return [name for name in names if name in self.functions]

    def scopes(self, function, node):
        """Return the name scopes around a node, through all callers, the outermost first."""
        scopes, seen = node.name.split("/")[:-1], set()
        while function in self._callers and function not in seen:  # functions may be recursive
            seen.add(function)
            function, caller = self._callers[function]
            scopes = caller.name.split("/")[:-1] + scopes
        return scopes


def layer_path(scopes, layer_names):
    """Return the layer that name scopes belong to; TensorFlow appends `_1` to repeated names."""
    path = []
    for scope in scopes:
        shorter = re.sub(r"_\d+$", "", scope)
        path.append(shorter if scope not in layer_names and shorter in layer_names else scope)
    return f"layer {'/'.join(path)}" if path else "the graph itself"


def names_of_layers(task):
    """Return the names of all layers of a task, at any depth."""
    return {layer.name for layer in task._flatten_layers()}


# === TF Serving's files next to a SavedModel: warm-up, batching, a list of models ===

# TF Serving's source fixes these names, the first in saved_model_warmup_util.h, the second in
# bundle_factory_util.cc, which parses a BatchingParameters text proto if the server has the flag
# --enable_per_model_batching_parameters.
WARMUP_FILE = "assets.extra/tf_serving_warmup_requests"
BATCHING_FILE = "batching_params.pbtxt"

BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
WARMUP_SIZES = BATCH_SIZES[:6]  # larger ones would delay the start of a server

ALLOWED = "\n".join(f"allowed_batch_sizes: {size}" for size in BATCH_SIZES)
BATCHING = f"""\
# How TF Serving joins requests to this version into batches. It reads this file with
#   --enable_batching --enable_per_model_batching_parameters
# Requests of more than max_batch_size rows are refused. The largest warm-up request has
# {WARMUP_SIZES[-1]} rows, so with a smaller max_batch_size the version does not load: then remove
# {WARMUP_FILE}.
max_batch_size {{ value: {BATCH_SIZES[-1]} }}
# How long a batch may wait for more rows.
batch_timeout_micros {{ value: 2000 }}
# Requests beyond these fail at once, so that the client can try again.
max_enqueued_batches {{ value: 100 }}
# All models of a server share its threads, so TF Serving ignores this line here and reads it from
# the file that --batching_parameters_file names, which can be this one.
num_batch_threads {{ value: 4 }}
# Batches are padded to the next of these sizes; the last is max_batch_size.
{ALLOWED}
"""

MODELS = """\
# The models for TF Serving to serve:
#   tensorflow_model_server --rest_api_port=8501 --model_config_file=PATH_OF_THIS_FILE
# In a container with the folder of versions mounted at /models/{name}, write
#   base_path: "/models/{name}"
# An export writes this file if it does not exist, and never changes it.
"""


def model_name(folder):
    """Return the name of a model in TF Serving, which is that of its folder of versions."""
    name = Path(os.path.abspath(folder)).name
    # It is part of URLs, /v1/models/NAME:predict, and of protocol buffers, which are UTF-8.
    if not re.fullmatch(r"[^:\x00-\x1f\x7f\ud800-\udfff]+", name):
        raise ValueError(
            f"path={os.fspath(folder)!r}: TF Serving names a model after its folder, and {name!r} "
            "cannot be such a name. Pass a folder whose name is UTF-8 without colons and control "
            "characters, such as film-critic."
        )
    if name.isdigit():
        raise ValueError(
            f"path={os.fspath(folder)!r} has the name of a version, and path is the folder of all "
            f"versions: pass {os.path.dirname(os.fspath(folder)) or 'another folder'!r}, in which "
            "the next one is made."
        )
    return name


def write_warmup(folder, logs):
    """Write the `PredictionLog`s that TF Serving replays before it serves a version."""
    path = folder / WARMUP_FILE
    path.parent.mkdir(exist_ok=True)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for log in logs:
            writer.write(log.SerializeToString())


def warmup_log(name, signature, inputs, method=None):
    """Return the `PredictionLog` of a request; `inputs` is a dict of arrays.

    `method` is `"classify"` or `"regress"`, which take one tf.Example per row, or None for Predict.
    """
    record = prediction_log_pb2.PredictionLog()
    method = method or "predict"
    request = getattr(record, f"{method}_log").request
    request.model_spec.name = name
    request.model_spec.signature_name = signature
    if method == "predict":
        for column, array in inputs.items():
            request.inputs[column].CopyFrom(tf.make_tensor_proto(array))
        return record
    for row in zip(*inputs.values(), strict=True):
        example = request.input.example_list.examples.add()
        for column, text in zip(inputs, row, strict=True):
            example.features.feature[column].bytes_list.value.append(text.encode())
    return record


def write_batching(folder):
    """Write the batching parameters of a version for TF Serving."""
    (folder / BATCHING_FILE).write_text(BATCHING)


def write_models_config(folder, name):
    """Write the list of models that TF Serving can be started with, if there is none.

    TF Serving ignores the file when it looks for versions, which are numbers.
    """
    path = folder / "models.config"
    if path.exists():  # it may have been edited
        return
    config = model_server_config_pb2.ModelServerConfig()
    config.model_config_list.config.add(
        name=name, base_path=os.path.abspath(folder), model_platform="tensorflow"
    )
    text = MODELS.format(name=name) + text_format.MessageToString(config, as_utf8=True)
    with replacing(path) as new:
        new.write_text(text, encoding="utf-8")
