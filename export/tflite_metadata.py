"""TFLite Model Metadata: a description inside of a `.tflite`, and files at its end.

The layout is that of `metadata_schema.fbs` 1.5 in https://github.com/google-ai-edge/mediapipe,
`mediapipe/tasks/metadata`. Only tables and fields that exports need are here.
"""

import io
import zipfile
from typing import NamedTuple

import flatbuffers
import numpy as np
from tensorflow.lite.python import schema_py_generated as schema

# The fields of each table in the schema's order, up to the last that is used.
FIELDS = {
    "AssociatedFile": ["name", "description", "type"],
    "BertTokenizerOptions": ["vocab_file"],
    "Content": ["content_properties_type", "content_properties"],
    "FeatureProperties": [],
    "ModelMetadata": [
        *("name", "description", "version", "subgraph_metadata", "author", "license"),
        *("associated_files", "min_parser_version"),
    ],
    "ProcessUnit": ["options_type", "options"],
    "RegexTokenizerOptions": ["delim_regex_pattern", "vocab_file"],
    "SentencePieceTokenizerOptions": ["sentencePiece_model"],
    "SubGraphMetadata": [
        *("name", "description", "input_tensor_metadata", "output_tensor_metadata"),
        *("associated_files", "input_process_units"),
    ],
    "TensorMetadata": [
        *("name", "description", "dimension_names", "content", "process_units", "stats"),
        "associated_files",
    ],
}
# Members of its unions and enumerations → their numbers.
FEATURE = 1
BERT_TOKENIZER, SENTENCEPIECE_TOKENIZER, REGEX_TOKENIZER = 4, 5, 6
AXIS_LABELS, VOCABULARY = 2, 5
IDENTIFIER = b"M001"
WITH_SCALES = 12  # the version of matrix products with int8 rows, each with its scale
ALIGNMENT = 16  # of what the buffers of a `.tflite` hold


class Table(NamedTuple):
    """A table of the schema; fields are tables, lists of them, strings, or numbers of one byte."""

    kind: str
    fields: dict = {}


def with_metadata(model, metadata, files):
    """Return a `.tflite` with its description and its files.

    Args:
        model: bytes of the `.tflite`.
        metadata: `Table` of the kind `ModelMetadata`.
        files: dict of a file's name → its bytes.
    """
    root = opened(model)
    described = _AlignedBuffer()
    described.data = np.frombuffer(_flatbuffer(metadata), np.uint8)
    root.buffers.append(described)
    entry = schema.MetadataT()
    entry.name, entry.buffer = "TFLITE_METADATA", len(root.buffers) - 1
    root.metadata = [*(root.metadata or []), entry]
    stream = io.BytesIO(closed(root))
    with zipfile.ZipFile(stream, "a") as archive:  # uncompressed, as it is read in place
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name), data)  # without today's date
    return stream.getvalue()


def opened(model):
    """Return the bytes of a `.tflite` as objects of the schema, which may be changed."""
    root = schema.ModelT.InitFromPackedBuf(model)
    for buffer in root.buffers:
        buffer.__class__ = _AlignedBuffer
    return root


def closed(root):
    """Return the bytes of what `opened` returned."""
    size = sum(len(buffer.data) for buffer in root.buffers if buffer.data is not None)
    builder = flatbuffers.Builder(size + 2**20)
    builder.Finish(root.Pack(builder), b"TFL3")
    return builder.Output()


def with_int8_rows(model, parts):
    """Return a `.tflite` whose products read int8 rows where they read the same numbers widened.

    Args:
        model: bytes of the `.tflite`.
        parts: list of int8 rows (N, D) and their scales (N, 1), as arrays or variables.
    """
    root = opened(model)
    for rows, scales in parts:
        rows, scales = np.asarray(rows), np.asarray(scales)
        widened = rows * scales
        own = np.frombuffer(rows.tobytes(), "uint8")
        places = [i for i, x in enumerate(root.buffers) if np.array_equal(x.data, own)]
        for graph in root.subgraphs:
            for number, tensor in enumerate(graph.tensors):
                if _holds(root, tensor, widened):
                    root.buffers[tensor.buffer].data = None
                    tensor.buffer, tensor.type = places[0], schema.TensorType.INT8
                    tensor.quantization = schema.QuantizationParametersT()
                    tensor.quantization.scale = scales.ravel().astype("float32")
                    tensor.quantization.zeroPoint = np.zeros(len(rows), "int64")
                    _read_directly(root, graph, number)
    return closed(root)


def _holds(root, tensor, values):
    """Whether a tensor is a constant of these floats, or of the same in 16 bits."""
    kinds = {schema.TensorType.FLOAT32: "float32", schema.TensorType.FLOAT16: "float16"}
    kind, data = kinds.get(tensor.type), root.buffers[tensor.buffer].data
    has_size = kind is not None and data is not None and [*tensor.shape] == [*values.shape]
    return has_size and np.array_equal(data.view(kind), values.astype(kind).ravel())


def _read_directly(root, graph, number):
    """Let matrix products read a tensor of int8 as it is, without widening it in each call."""
    code = schema.BuiltinOperator
    kinds = [root.operatorCodes[x.opcodeIndex].builtinCode for x in graph.operators]
    widening = [
        x
        for x, kind in zip(graph.operators, kinds, strict=True)
        if kind == code.DEQUANTIZE and x.inputs[0] == number
    ]
    same = {number, *(x.outputs[0] for x in widening)}
    for operator, kind in zip(graph.operators, kinds, strict=True):
        if kind == code.FULLY_CONNECTED and operator.inputs[1] in same:
            operator.inputs = [operator.inputs[0], number, *operator.inputs[2:]]
            operator.builtinOptions.asymmetricQuantizeInputs = True
            kind = root.operatorCodes[operator.opcodeIndex]
            kind.version = max(kind.version, WITH_SCALES)
    graph.operators = [x for x in graph.operators if x not in widening]


class _AlignedBuffer(schema.BufferT):
    """Its data begins at a multiple of `ALIGNMENT`, which the generated class neglects."""

    def Pack(self, builder):
        if self.data is not None:
            builder.Prep(ALIGNMENT, len(self.data))
        return super().Pack(builder)


def _flatbuffer(table):
    builder = flatbuffers.Builder(1024)
    builder.Finish(_write(builder, table), IDENTIFIER)
    return bytes(builder.Output())


def _write(builder, value):
    """Write a string, a table or a list of tables, what it refers to first; return its offset."""
    if isinstance(value, str):
        return builder.CreateString(value)
    if isinstance(value, list):
        offsets = [_write(builder, one) for one in value]
        builder.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            builder.PrependUOffsetTRelative(offset)
        return builder.EndVector()
    names = FIELDS[value.kind]
    written = {
        name: one if isinstance(one, int) else _write(builder, one)
        for name, one in value.fields.items()
    }
    builder.StartObject(len(names))
    for name, one in written.items():
        if isinstance(value.fields[name], int):
            builder.PrependUint8Slot(names.index(name), one, 0)
        else:
            builder.PrependUOffsetTRelativeSlot(names.index(name), one, 0)
    return builder.EndObject()
