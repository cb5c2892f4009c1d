"""Export as a `.tflite` for MediaPipe's Tasks: ids in, the tokenizer in the file's metadata."""

from tensorflow.lite.python import schema_py_generated as schema

from keras_lm.export import tflite
from keras_lm.export.tflite_metadata import (
    AXIS_LABELS,
    BERT_TOKENIZER,
    FEATURE,
    REGEX_TOKENIZER,
    SENTENCEPIECE_TOKENIZER,
    VOCABULARY,
    Table,
    with_metadata,
)

LABELS = "labels.txt"
# What the inputs hold, by the names that MediaPipe knows them by.
INPUTS = {
    "ids": "Ids of the tokens of a text.",
    "mask": "1 for tokens, 0 for padding.",
    "segment_ids": "0 for all tokens.",
}
OUTPUTS = {
    "scores": "The probability of each label.",
    "embedding": "The vector of the text.",
}
# The version of the schema in which what an export uses was new.
MIN_PARSER_VERSION = "1.2.1"


def export_mediapipe(task, path, weights, freeze, verify):
    """Write a task as a `.tflite` that MediaPipe's `TextClassifier` or `TextEmbedder` runs.

    Its signature `serving_default` takes the ids of one text, int32 [1, S]: `ids`, `mask` and
    `segment_ids` for WordPiece and SentencePiece, `ids` alone for words. It returns `scores` [1,
    classes] of a `TextClassifier`, `embedding` [1, D] of a `FeatureExtractor`. All operations are
    LiteRT's own. The vocabulary and the labels are files at its end.

    Texts are padded as by the task: with `padding="longest"`, S varies; for words it is always
    `sequence_length`. MediaPipe's tokenizers differ from ours, see docs/phones.md.

    A ValueError is raised if MediaPipe cannot run the task: it takes pairs or has another answer, a
    tokenizer that MediaPipe lacks, capitals, or loops; or a label cannot be a line of a file.
    """
    offer = task.id_signatures
    labels = _lines(offer.labels)

    def finish(model):
        root = schema.Model.GetRootAs(model, 0)
        if root.SubgraphsLength() != 1:
            raise ValueError(
                f"{type(task).__name__} has loops, and MediaPipe takes a single graph: export with "
                "format='litert'."
            )
        files = {offer.tokenizer.name: offer.tokenizer.data}
        if labels:
            files[LABELS] = labels.encode()
        return with_metadata(model, _metadata(offer, *_order(root)), files)

    return tflite.write(task, path, weights, freeze, verify, offer, finish)


def _lines(labels):
    """Return the labels' file; ValueError for a label that is not one line."""
    for label in labels or []:
        if label.splitlines() != [label]:
            raise ValueError(
                f"the class name {label!r} is not one line, as MediaPipe reads them: rename it in "
                "task.class_names."
            )
    return "".join(f"{label}\n" for label in labels or [])


def _order(root):
    """Return the names of a graph's inputs and outputs, in the order of their tensors."""
    graph, signature = root.Subgraphs(0), root.SignatureDefs(0)
    inputs = map(signature.Inputs, range(signature.InputsLength()))
    outputs = map(signature.Outputs, range(signature.OutputsLength()))
    names = {entry.TensorIndex(): entry.Name().decode() for entry in (*inputs, *outputs)}
    return [
        [names[index] for index in indices.tolist()]
        for indices in (graph.InputsAsNumpy(), graph.OutputsAsNumpy())
    ]


def _metadata(offer, inputs, outputs):
    """Return the `ModelMetadata`."""
    unit = _process_unit(offer.tokenizer)
    # Splitting at a pattern belongs to the tensor of ids, other tokenizers to the whole graph.
    of_tensor = {"process_units": [unit]} if offer.tokenizer.kind == "regex" else {}
    of_graph = {} if of_tensor else {"input_process_units": [unit]}
    labels = {"associated_files": [_file(LABELS, AXIS_LABELS)]} if offer.labels else {}
    graph = Table(
        "SubGraphMetadata",
        {
            "input_tensor_metadata": [_tensor(name, INPUTS[name], of_tensor) for name in inputs],
            "output_tensor_metadata": [_tensor(name, OUTPUTS[name], labels) for name in outputs],
            **of_graph,
        },
    )
    name = type(offer.task).__name__
    return Table(
        "ModelMetadata",
        {
            "name": name,
            "description": f"{name} by keras_lm, whose tokenizer is a file in here.",
            "subgraph_metadata": [graph],
            "min_parser_version": MIN_PARSER_VERSION,
        },
    )


def _tensor(name, description, more):
    feature = {"content_properties_type": FEATURE, "content_properties": Table("FeatureProperties")}
    known = {"name": name, "description": description, "content": Table("Content", feature)}
    return Table("TensorMetadata", known | more)


def _process_unit(tokenizer):
    file = [_file(tokenizer.name, VOCABULARY)]
    number, options = {
        "bert": (BERT_TOKENIZER, Table("BertTokenizerOptions", {"vocab_file": file})),
        "sentencepiece": (
            SENTENCEPIECE_TOKENIZER,
            Table("SentencePieceTokenizerOptions", {"sentencePiece_model": file}),
        ),
        "regex": (
            REGEX_TOKENIZER,
            Table(
                "RegexTokenizerOptions",
                {"delim_regex_pattern": tokenizer.pattern or "", "vocab_file": file},
            ),
        ),
    }[tokenizer.kind]
    return Table("ProcessUnit", {"options_type": number, "options": options})


def _file(name, type):
    return Table("AssociatedFile", {"name": name, "type": type})
