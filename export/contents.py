"""What an exported model holds, from its files. Importing this module imports TensorFlow."""

import zipfile

import numpy as np
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow.lite.python import schema_py_generated as schema

from keras_lm.export.saved_model import BATCHING_FILE, WARMUP_FILE
from keras_lm.tensorflow import tf
from keras_lm.utils import files
from keras_lm.utils.json_values import first_line, plain

OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
TFLITE_DTYPES = {number: name.lower() for name, number in vars(schema.TensorType).items()
                 if isinstance(number, int)}  # fmt: skip


def inspect_saved_model(folder, versions):
    """Return what the SavedModel of one version holds; its graph is read, not loaded."""
    try:
        proto = saved_model_pb2.SavedModel.FromString((folder / "saved_model.pb").read_bytes())
        graph = proto.meta_graphs[0]
        reader = tf.train.load_checkpoint(str(folder / "variables" / "variables"))
        shapes = reader.get_variable_to_shape_map()
    except Exception as error:  # protobuf and TensorFlow raise a dozen unrelated classes
        raise ValueError(
            f"{folder} is incomplete or damaged: {first_line(error)} Export it again."
        ) from error
    dtypes = reader.get_variable_to_dtype_map()
    halves = ["bfloat16"] if _constants(graph, tf.bfloat16) else []
    weights = [name for name in shapes if name != OBJECT_GRAPH]
    signatures = {
        name: {
            "inputs": _columns(definition.inputs, definition.defaults),
            "outputs": _columns(definition.outputs),
        }
        for name, definition in sorted(graph.signature_def.items())
        if not name.startswith("__")  # TensorFlow's own, which initialises tables
    }
    return {
        "path": str(folder),
        "what": "SavedModel",
        "versions": versions or None,
        "tensorflow": graph.meta_info_def.tensorflow_version,
        "signatures": signatures,
        "state_bytes": _state_bytes(signatures),
        "parameters": _number_of_weights(graph, [shapes[name] for name in weights]),
        "dtype": ", ".join(sorted({*halves, *(dtypes[name].name for name in weights)}))
        or "float32, frozen",
        "bytes": files.size(folder),
        "warmup_requests": (folder / WARMUP_FILE).is_file(),
        "batching_settings": (folder / BATCHING_FILE).is_file(),
    }


def _number_of_weights(graph, shapes):
    """Return how many weights a graph has, for the shapes of what its checkpoint holds."""
    nodes = graph.object_graph_def.nodes
    held = {child.local_name: nodes[child.node_id] for child in nodes[0].children}
    if shapes and "weights" in held:  # ours: the checkpoint may hold less of them, and scales
        variables = [nodes[child.node_id].variable for child in held["weights"].children]
        shapes = [[dim.size for dim in variable.shape.dim] for variable in variables]
        for dtype in (tf.int8, tf.bfloat16):
            shapes += _constants(graph, dtype)  # which are multiplied as they are
    elif not shapes:  # frozen
        shapes = _constants(graph, tf.float32)
    return int(sum(np.prod(shape, dtype=np.int64) for shape in shapes))


def _constants(graph, dtype):
    """Return the shapes of a graph's constants of a type, without the scalars."""
    tensors = (
        node.attr["value"].tensor
        for function in graph.graph_def.library.function
        for node in function.node_def
        if node.op == "Const"
    )
    return [
        [dim.size for dim in tensor.tensor_shape.dim]
        for tensor in tensors
        if tensor.dtype == dtype.as_datatype_enum and tensor.tensor_shape.dim
    ]


def inspect_tflite(path):
    """Return what a `.tflite` holds; no interpreter is needed."""
    data = path.read_bytes()
    if len(data) < 8 or not schema.Model.ModelBufferHasIdentifier(data, 0):
        raise ValueError(f"{path} is not a .tflite: export or copy it again.")
    try:
        model = schema.Model.GetRootAs(data, 0)
        signatures = {}
        for signature in map(model.SignatureDefs, range(model.SignatureDefsLength())):
            graph = model.Subgraphs(signature.SubgraphIndex())
            signatures[signature.SignatureKey().decode()] = {
                "inputs": _tensors(graph, signature.Inputs, signature.InputsLength()),
                "outputs": _tensors(graph, signature.Outputs, signature.OutputsLength()),
            }
        weights = [_weights(model, model.Subgraphs(i)) for i in range(model.SubgraphsLength())]
    except Exception as error:  # of a file that is cut off, offsets lead anywhere
        raise ValueError(f"{path} is damaged: {first_line(error)}") from error
    return {
        "path": str(path),
        "what": "LiteRT model",
        "signatures": signatures,
        "state_bytes": _state_bytes(signatures),
        "parameters": sum(weights),
        "files": zipfile.ZipFile(path).namelist() if zipfile.is_zipfile(path) else None,
        "bytes": len(data),
    }


def _state_bytes(signatures):
    """Return the bytes per row of a state that goes in and out, None without or if it grows."""
    inputs, outputs = (
        signatures.get("next_token", {}).get(side, {}) for side in ("inputs", "outputs")
    )
    parts = [inputs[name] for name in inputs if name in outputs]
    sizes = [part["shape"][1:] for part in parts]
    if not parts or any(None in shape for shape in sizes):
        return None
    sizes = [np.prod(shape, dtype=np.int64) for shape in sizes]
    return int(sum(n * tf.as_dtype(p["dtype"]).size for n, p in zip(sizes, parts, strict=True)))


def _columns(infos, defaults=()):
    columns = {}
    for name, info in sorted(infos.items()):
        sizes = [None if dim.size < 0 else dim.size for dim in info.tensor_shape.dim]
        shape = None if info.tensor_shape.unknown_rank else sizes
        columns[name] = {"dtype": tf.as_dtype(info.dtype).name, "shape": shape}
        if name in defaults:
            columns[name]["default"] = plain(tf.make_ndarray(defaults[name]))
    return columns


def _tensors(graph, get, number):
    columns = {}
    for entry in map(get, range(number)):
        tensor = graph.Tensors(entry.TensorIndex())
        signed = not tensor.ShapeSignatureIsNone()  # where sizes vary, the plain shape has ones
        shape = tensor.ShapeSignatureAsNumpy() if signed else tensor.ShapeAsNumpy()
        sizes = [] if isinstance(shape, int) else shape.tolist()
        columns[entry.Name().decode()] = {
            "dtype": TFLITE_DTYPES[tensor.Type()],
            "shape": [None if size < 0 else size for size in sizes],
        }
    return dict(sorted(columns.items()))


def _weights(model, graph):
    """Count the constant floats in a graph."""
    floats = (schema.TensorType.FLOAT32, schema.TensorType.FLOAT16)
    return sum(
        int(np.prod(tensor.ShapeAsNumpy(), dtype=np.int64))
        for tensor in map(graph.Tensors, range(graph.TensorsLength()))
        if tensor.Type() in floats and not model.Buffers(tensor.Buffer()).DataIsNone()
    )
