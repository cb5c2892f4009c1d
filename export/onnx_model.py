"""Export as an ONNX file: for ONNX Runtime, OpenVINO and other runtimes of that format."""

import hashlib
import json

import numpy as np

from keras_lm.export.comparison import compare, within
from keras_lm.export.saved_model import layer_path, names_of_layers
from keras_lm.presets import saving
from keras_lm.tensorflow import tf
from keras_lm.utils.files import on_disk, replacing
from keras_lm.utils.optional_dependencies import check_installed
from keras_lm.utils.quiet_stderr import quiet
from keras_lm.version import __version__

OPSET = 18  # the newest that tf2onnx writes
LARGEST = 2_000_000_000  # bytes of weights; a protocol buffer holds 2**31 in all
PACKAGES = ("onnx", "tf2onnx")
TOLERANCE = 1e-4  # of random rows, whose logits may be large; kernels add up in another order
LARGE = 2**16  # numbers in a table that is worth storing once
# Names of TensorFlow and ONNX.
COMPARISONS = {
    "Greater": "Greater",
    "GreaterEqual": "GreaterOrEqual",
    "Less": "Less",
    "LessEqual": "LessOrEqual",
}


def export_onnx(task, path, weights, freeze, verify, in_bytes=False):
    """Write a task as an ONNX file that takes ids, or bytes; the file is replaced in one step.

    Of ids, its inputs are the packed inputs of the task, as those of the signature `tokens` of a
    SavedModel, int32 [batch, sequence] each ([batch, choices, sequence] of a `MultipleChoice`). Its
    outputs have the names of served answers: `scores` [batch, classes] of a `TextClassifier`,
    [batch] of a `TextRegressor`, [batch, choices] of a `MultipleChoice`, and [batch, sequence,
    classes] of a `TokenClassifier`; `embedding` of a `FeatureExtractor`; `start_logits` and
    `end_logits` [batch, sequence] of a `QuestionAnswerer`; `logits` [batch, sequence, vocabulary]
    of a `MaskedLM`. All sizes may change between calls. Names of classes are in the file's
    metadata, under `class_names`, as JSON.

    With `in_bytes` the tokenizer is in the file, which takes texts: `text`, uint8 [bytes], the
    UTF-8 of all texts one after another, and `text_ends`, int32 [batch], where each ends; so
    `text_pair` and all other columns. (Ends of `choices` are [batch, choices].) The outputs are
    those of the task that are numbers, see `NumberSignatures`; a `MaskedLM` also has `tokens` and
    `tokens_ends`, and `filled_text` and `filled_text_ends`, since no output has an input's name.

    All operators are those of ONNX's opset 18. The file is checked by `onnx.checker`, and asked in
    ONNX Runtime, if that is installed, which `in_bytes` requires.

    A ValueError is raised if the task computes in half precision, has no such form, is larger than
    2 GB, or ONNX has no operator for one of its operations.
    """
    path = on_disk(path)
    # (A tokenizer is never written without having been run.)
    for package in (*PACKAGES, "onnxruntime") if in_bytes else PACKAGES:
        check_installed(package, "format='onnx'")
    if freeze:
        raise ValueError("freeze=True: leave it out, as the weights of an .onnx are constants.")
    if weights != "float32":
        raise ValueError(
            f"weights={weights!r}: an .onnx is written in float32. Leave it out, and call "
            "onnxruntime.quantization.quantize_dynamic on the file, see docs/onnx.md."
        )
    if path.is_dir():
        raise IsADirectoryError(f"path={str(path)!r} is a folder: pass a file, such as model.onnx.")
    _check_task(task)
    offer = task.number_signatures if in_bytes else task.packed_signatures
    if in_bytes:
        offer.texts()  # raises if there is no tokenizer
    model = _model(task, offer)
    with replacing(path) as new:
        new.write_bytes(model)
        verify(new)
    return path


def _check_task(task):
    compute_dtype = task.backbone.dtype_policy.compute_dtype
    if compute_dtype != "float32":
        raise ValueError(
            f"the task computes in {compute_dtype}, and an .onnx in float32: save it with "
            "save_to_preset and load it with from_preset(folder, dtype='float32')."
        )
    size = 4 * sum(int(np.prod(weight.shape)) for weight in task.weights)
    if size > LARGEST:
        raise ValueError(
            f"an .onnx holds up to 2 GB, and the weights take {size / 1e9:.1f} GB: export as a "
            "SavedModel instead."
        )


def _model(task, offer):
    """Return the bytes of a model that was checked."""
    import onnx

    function = offer.function()
    model = _converted(function)
    if missing := _missing(model, task):
        raise ValueError(
            f"{type(task).__name__} does not run in ONNX: {missing}. Export as a SavedModel."
        )
    _capture_constants(model.graph)
    _forget_bounds(model.graph)
    _share_transposed(model)
    _describe(model, task, offer)
    onnx.checker.check_model(model, full_check=True)
    data = model.SerializeToString()
    if problem := _failure(data, function, offer):
        raise ValueError(
            f"{type(task).__name__} does not run in ONNX: {problem}. Export as a SavedModel."
        )
    return data


def _converted(function):
    """Return the `onnx.ModelProto` of a `ConcreteFunction` of named tensors."""
    from tf2onnx import optimizer, tf_loader, tfonnx

    # Without the one that joins reshapes: the shape of the second may copy sizes of the first.
    optimizers = {
        "transpose": optimizer.TransposeOptimizer,
        "constants": optimizer.ConstFoldOptimizer,
        "loops": optimizer.LoopOptimizer,
        "duplicates": optimizer.MergeDuplicatedNodesOptimizer,
        "reshapes": optimizer.ReshapeOptimizer,
        "identities": optimizer.IdentityOptimizer,
        "einsum": optimizer.EinsumOptimizer,
    }
    captured = {inner.op.name: value for value, inner in function.graph.captures}
    tensors = [x for x in function.inputs if x.op.name not in captured]
    inputs = {tensor.name: tensor.op.name for tensor in tensors}
    outputs = {tensor.name: name for name, tensor in function.structured_outputs.items()}
    with quiet(), tf.device("/cpu:0"):
        frozen = tf_loader.from_function(function, [*inputs], [*outputs])
        _hold(frozen, captured)
        with tf.Graph().as_default() as graph:
            tf.import_graph_def(frozen, name="")
            converted = tfonnx.process_tf_graph(
                graph,
                continue_on_error=True,  # what has no operator is looked for afterwards
                opset=OPSET,
                custom_op_handlers={name: (write, []) for name, write in HANDLERS.items()},
                custom_rewriter=[_normalize_layers, _sum_large_integers],
                input_names=[*inputs],
                output_names=[*outputs],
                tensors_to_rename=inputs | outputs,
            )
            converted = optimizer.optimize_graph(converted, False, optimizers)
            return converted.make_model("keras_lm")


def _hold(graph_def, captured):
    """Make constants of the tensors that a graph reads from outside, which are no inputs."""
    for node in graph_def.node:
        if node.op == "Placeholder" and node.name in captured:
            node.CopyFrom(_constant(node.name, captured[node.name].numpy()))


def _constant(name, value):
    with tf.Graph().as_default() as graph:
        tf.constant(value, name=name)
    return graph.as_graph_def().node[0]


def _erfc(graph, node, name, _):
    """Write erfc, which the exact form of GELU has and ONNX lacks, by erf.

    erfc(−x·√½) becomes 1 + erf(x / √2), the form that ONNX Runtime makes one kernel of.
    """

    def constant(label, value):
        return graph.make_const(f"{name}/{label}", np.float32(value)).output[0]

    product, output, kind = node.inputs[0], node.output, _kind(node)
    graph.remove_node(node.name)
    negative = [each for each in product.inputs if product.type == "Mul" and each.type == "Neg"]
    factors = [each.get_tensor_value() for each in product.inputs if each.is_const()]
    if negative and factors and np.isclose(factors[0], np.sqrt(0.5), rtol=1e-6):
        inputs = [negative[0].input[0], constant("root", np.sqrt(2))]
        sign, source = "Add", graph.make_node("Div", inputs, **kind).output[0]
    else:
        sign, source = "Sub", node.input[0]
    erf = graph.make_node("Erf", [source], **kind).output[0]
    graph.make_node(sign, [constant("one", 1), erf], name=name, outputs=output, **kind)


def _log1p(graph, node, name, _):
    """Write log(1 + x), which ONNX lacks: of numbers near 0, it is exact to a rounding of 1."""
    x, kind = _replaced(graph, node)
    one = graph.make_const(f"{name}/one", np.float32(1)).output[0]
    total = graph.make_node("Add", [one, x], **kind).output[0]
    graph.make_node("Log", [total], name=name, outputs=node.output, **kind)


def _floor_divide(graph, node, name, _):
    """Write a quotient rounded down; tf2onnx's own of integers is rounded to zero."""
    x, y, kind = _replaced(graph, node)
    if _is_floating(kind):
        quotient = graph.make_node("Div", [x, y], **kind).output[0]
        graph.make_node("Floor", [quotient], name=name, outputs=node.output, **kind)
        return
    rest = graph.make_node("Mod", [x, y], **kind).output[0]
    whole = graph.make_node("Sub", [x, rest], **kind).output[0]
    graph.make_node("Div", [whole, y], name=name, outputs=node.output, **kind)


def _floor_modulo(graph, node, name, _):
    """Write what `_floor_divide` leaves, of the sign of the divisor."""
    x, y, kind = _replaced(graph, node)
    if _is_floating(kind):
        quotient = graph.make_node("Div", [x, y], **kind).output[0]
        quotient = graph.make_node("Floor", [quotient], **kind).output[0]
        whole = graph.make_node("Mul", [quotient, y], **kind).output[0]
        graph.make_node("Sub", [x, whole], name=name, outputs=node.output, **kind)
        return
    graph.make_node("Mod", [x, y], name=name, outputs=node.output, **kind)


def _sum(graph, node, name, _):
    """Write a sum of several tensors pair by pair; ONNX's own is of floats alone."""
    total, *others, last, kind = _replaced(graph, node)
    for other in others:
        total = graph.make_node("Add", [total, other], **kind).output[0]
    graph.make_node("Add", [total, last], name=name, outputs=node.output, **kind)


def _compare(graph, node, name, _):
    """Write a comparison of integers as it is; tf2onnx's own is of float32.

    See findings/tf2onnx-large-integers.sh.
    """
    from onnx import TensorProto

    (dtype,) = {graph.get_dtype(each) for each in node.input}
    x, y, kind = _replaced(graph, node)
    if dtype not in (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT32, TensorProto.INT64):
        cast = {"attr": {"to": TensorProto.INT32}}  # ONNX Runtime has no kernel for smaller ones
        x, y = (graph.make_node("Cast", [each], **cast).output[0] for each in (x, y))
    operator = COMPARISONS[node.type]
    graph.make_node(operator, [x, y], name=name, outputs=node.output, **kind)


def _scatter(graph, node, name, _):
    """Write values added up at their places; tf2onnx's own keeps one of those at the same place.

    See findings/tf2onnx-repeated-indices.sh.
    """
    indices, values, shape, kind = _replaced(graph, node)
    _write_scattered(graph, name, node.output, kind, (indices, values, shape), "add", 0)


def _segment_minimum(graph, node, name, _):
    """Write the least number of each segment by a scatter; tf2onnx's own sorts."""
    values, segments, number, kind = _replaced(graph, node)
    if len(kind["shapes"][0]) != 1:
        raise ValueError("a segment's minimum is of numbers alone, not of rows.")
    shape = _reshaped(graph, number, [1])
    most = np.iinfo(_numpy_dtype(kind)).max
    _write_scattered(graph, name, node.output, kind, (segments, values, shape), "min", most)


def _write_scattered(graph, name, outputs, kind, inputs, reduction, fill):
    from onnx import TensorProto, helper

    indices, values, shape = inputs
    (dtype,), (sizes,) = kind["dtypes"], kind["shapes"]
    shape = graph.make_node("Cast", [shape], attr={"to": TensorProto.INT64}).output[0]
    fill = helper.make_tensor("value", dtype, [1], [fill])
    filled = graph.make_node("ConstantOfShape", [shape], attr={"value": fill}, **kind).output[0]
    if len(sizes) == 1:
        indices = _reshaped(graph, indices, [-1])
        attributes = {"axis": 0, "reduction": reduction}
        kind |= {"name": name, "outputs": outputs, "attr": attributes}
        graph.make_node("ScatterElements", [filled, indices, values], **kind)
        return
    indices = graph.make_node("Cast", [indices], attr={"to": TensorProto.INT64}).output[0]
    kind |= {"name": name, "outputs": outputs, "attr": {"reduction": reduction}}
    graph.make_node("ScatterND", [filled, indices, values], **kind)


def _reshaped(graph, source, shape):
    from tf2onnx import utils

    shape = graph.make_const(utils.make_name("shape"), np.array(shape, np.int64)).output[0]
    return graph.make_node("Reshape", [source, shape]).output[0]


def _select(graph, node, name, _):
    """Write a choice as one operator; tf2onnx's own are two products and a sum."""
    condition, x, y, kind = _replaced(graph, node)
    if not tf.as_dtype(_numpy_dtype(kind)).is_bool:
        graph.make_node("Where", [condition, x, y], name=name, outputs=node.output, **kind)
        return
    # (ONNX Runtime has no kernel for the choice of truths.)
    kinds = {"dtypes": kind["dtypes"]}
    other = graph.make_node("Not", [condition], **kinds).output[0]
    x = graph.make_node("And", [condition, x], **kinds).output[0]
    y = graph.make_node("And", [other, y], **kinds).output[0]
    graph.make_node("Or", [x, y], name=name, outputs=node.output, **kind)


# What writes the operations of TensorFlow that tf2onnx writes wrongly, or as slower ones.
HANDLERS = {
    "AddN": _sum,
    "Erfc": _erfc,
    "FloorDiv": _floor_divide,
    "FloorMod": _floor_modulo,
    "Log1p": _log1p,
    **dict.fromkeys(COMPARISONS, _compare),
    "ScatterNd": _scatter,
    "SelectV2": _select,
    "UnsortedSegmentMin": _segment_minimum,
}


def _replaced(graph, node):
    """Remove a node; return its inputs, and the shapes and dtypes of what takes its place."""
    kind = _kind(node)
    graph.remove_node(node.name)
    return *node.input, kind


def _kind(node):
    return {"shapes": node.output_shapes, "dtypes": node.output_dtypes}


def _numpy_dtype(kind):
    from onnx import helper

    (dtype,) = kind["dtypes"]
    return helper.tensor_dtype_to_np_dtype(dtype)


def _is_floating(kind):
    return tf.as_dtype(_numpy_dtype(kind)).is_floating


def _normalize_layers(graph, nodes):
    """Write what `LayerNormalization` computes as one operator, for which runtimes have kernels."""
    from tf2onnx.graph_matcher import GraphMatcher, OpTypePattern

    def of(kind, *inputs, name=None):
        return OpTypePattern(kind, name=name, inputs=[*inputs])

    mean = of("Mean", of("*", name="again"), of("Const", name="axis"))
    square = of("Square", of("Sub", of("*", name="input"), mean, name="centred"))
    variance = of(
        "AddV2", of("Mean", square, of("Const", name="same")), of("Const", name="epsilon")
    )
    for match in GraphMatcher(of("Rsqrt", variance, name="root")).match_ops(nodes):
        source, centred = match.get_tensor("input"), match.get_tensor("centred")
        last, scale = _product(graph, match.get_op("root").output[0], centred)
        axes = [match.get_op(name).get_tensor_value() for name in ("axis", "same")]
        is_last = all(axis in (-1, len(graph.get_shape(source)) - 1) for axis in axes)
        if scale is None or not is_last or match.get_tensor("again") != source:
            continue
        inputs = [source, scale]
        added, offset = _consumer(graph, last, "AddV2")
        if offset is not None and len(graph.get_shape(offset)) == 1:
            last, inputs = added, [*inputs, offset]
        output, shapes, dtypes = last.output, last.output_shapes, last.output_dtypes
        graph.remove_node(last.name)
        graph.make_node(
            "LayerNormalization",
            inputs,
            attr={"axis": -1, "epsilon": float(match.get_op("epsilon").get_tensor_value())},
            name=last.name,
            outputs=output,
            shapes=shapes,
            dtypes=dtypes,
        )
    return graph.get_nodes()


def _sum_large_integers(graph, nodes):
    """Write sums of int64 as products with ones; ONNX Runtime's own are rounded.

    See findings/onnxruntime-int64-sum.sh.
    """
    from onnx import TensorProto
    from tf2onnx import utils

    for node in nodes:
        if node.type != "Sum" or graph.get_dtype(node.output[0]) != TensorProto.INT64:
            continue
        sizes, axes = graph.get_shape(node.input[0]), node.inputs[1]
        if not axes.is_const() or not sizes or len(sizes) < 2 or sizes[-1] < 1:
            continue
        if np.ravel(axes.get_tensor_value()).tolist() not in ([-1], [len(sizes) - 1]):
            continue
        size = [sizes[-1]] + [1] * bool(node.get_attr_value("keep_dims"))
        ones = graph.make_const(utils.make_name("ones"), np.ones(size, np.int64)).output[0]
        inputs, outputs, kind = [node.input[0], ones], node.output, _kind(node)
        graph.remove_node(node.name)
        graph.make_node("MatMul", inputs, outputs=outputs, skip_conversion=True, **kind)
    return graph.get_nodes()


def _product(graph, root, centred):
    """Return the product of three tensors, in any order, and the third, a vector, or None."""
    node, scale, others = graph.get_node_by_output(root), None, set()
    while centred not in others or scale is None:
        node, other = _consumer(graph, node, "Mul")
        if other is None:
            return None, None
        others.add(other)
        scale = other if len(graph.get_shape(other)) == 1 else scale
    return (node, scale) if len(others) == 2 else (None, None)


def _consumer(graph, node, kind):
    """Return the only node that reads a node, if it is of a kind, and its other input, or None."""
    consumers = graph.find_output_consumers(node.output[0])
    if len(consumers) != 1 or consumers[0].type != kind:
        return node, None
    (other,) = (name for name in consumers[0].input if name != node.output[0])
    return consumers[0], other


def _missing(model, task):
    """Describe the operations without an operator; the converter writes all as they are."""
    import onnx

    names = names_of_layers(task)
    missing = {}
    for node in _nodes(model.graph):
        if not onnx.defs.has(node.op_type, OPSET):
            where = layer_path(node.name.split("/")[:-1], names)
            missing[f"there is no operator for {node.op_type}, in {where}"] = None
    more = [f"and {len(missing) - 3} more"] if len(missing) > 3 else []
    return "; ".join([*missing][:3] + more)


def _nodes(graph):
    """Yield the nodes of a graph and of the loops and branches in it."""
    for node in graph.node:
        yield node
        for inner in _graphs(node):
            yield from _nodes(inner)


def _capture_constants(graph):
    """Let loops read what they leave as it is from outside: a runtime may copy a state each time.

    OpenVINO does not read a loop otherwise, whose output is one of its inputs.
    """
    outputs = {value.name for value in graph.output}
    for node in graph.node:
        for inner in _graphs(node):
            _capture_constants(inner)
        if node.op_type != "Loop":
            continue
        (body,) = _graphs(node)
        for n in reversed(range(len(node.input) - 2)):
            given, inside, left = node.input[n + 2], body.input[n + 2].name, node.output[n]
            if body.output[n + 1].name != inside or left in outputs:
                continue
            _rename(body, inside, given)
            _rename(graph, left, given)
            del node.input[n + 2], body.input[n + 2], body.output[n + 1], node.output[n]


def _forget_bounds(graph):
    """Take the lower 31 bits of sizes that become int32: they are the same, without bounds.

    OpenVINO computes bounds of shapes, and that of an unknown size, as int32, is −1. It has no
    bounds of bits. (A remainder's are those of another size, by which it then reshapes.)
    """
    from onnx import helper, numpy_helper

    graph.initializer.append(numpy_helper.from_array(np.array(2**31 - 1, np.int64), "sizes/bits"))

    def write(inner):
        sizes = {x for node in inner.node if node.op_type in ("Shape", "Size") for x in node.output}
        nodes = [*inner.node]
        del inner.node[:]
        for node in nodes:
            for each in _graphs(node):
                write(each)
            if node.op_type == "Cast" and node.input[0] in sizes:
                size = f"{node.output[0]}/size"
                inputs = [node.input[0], "sizes/bits"]
                inner.node.append(helper.make_node("BitwiseAnd", inputs, [size]))
                node.input[0] = size
            inner.node.append(node)

    write(graph)


def _rename(graph, name, other):
    """Read a tensor from another name in a graph and in the loops and branches in it."""
    for node in graph.node:
        for n, given in enumerate(node.input):
            if given == name:
                node.input[n] = other
        for inner in _graphs(node):
            _rename(inner, name, other)


def _graphs(node):
    return [each.g for each in node.attribute if each.HasField("g")]


def _share_transposed(model):
    """Store a table once that is there twice, as it is and transposed: embeddings that are tied."""
    from onnx import helper, numpy_helper

    graph, names = model.graph, {}
    for tensor in sorted(graph.initializer, key=lambda tensor: len(tensor.dims)):
        *outer, rows, columns = (1, *tensor.dims) if len(tensor.dims) > 1 else (0, 0, 0)
        if rows * columns < LARGE or {*outer} != {1}:
            continue
        table = numpy_helper.to_array(tensor).reshape(rows, columns)
        if other := names.get(_digest(table.T)):
            shape = numpy_helper.from_array(np.array(tensor.dims), f"{tensor.name}/shape")
            turned = f"{tensor.name}/transposed"
            reshape = helper.make_node("Reshape", [turned, shape.name], [tensor.name])
            graph.node.insert(0, reshape)
            graph.node.insert(0, helper.make_node("Transpose", [other], [turned], perm=[1, 0]))
            graph.initializer.remove(tensor)
            graph.initializer.append(shape)
        elif len(tensor.dims) == 2:
            names[_digest(table)] = tensor.name


def _digest(array):
    return array.shape, hashlib.sha256(np.ascontiguousarray(array)).digest()


def _describe(model, task, offer):
    """Name the producer and the axes, and add what a program needs beside the ids."""
    from onnx import helper

    graph, specs = model.graph, offer.specs()
    for value in graph.input:
        axes = offer.axes(value.name)
        for size, axis in zip(value.type.tensor_type.shape.dim, axes):
            if not size.dim_value:
                size.dim_param = axis
    for value in graph.output:
        for size in value.type.tensor_type.shape.dim[:1]:
            size.dim_param = "batch"
    order = [*specs]
    inputs = sorted(graph.input, key=lambda value: order.index(value.name))
    del graph.input[:]
    graph.input.extend(inputs)
    model.producer_name, model.producer_version = "keras_lm", __version__
    takes_bytes = any(spec.dtype == tf.uint8 for spec in specs.values())
    model.doc_string = saving.card_of_onnx(task, takes_bytes)
    stated = {"task": type(task).__name__, "sequence_length": str(task.packer.sequence_length)}
    if names := getattr(task, "class_names", None):
        stated["class_names"] = json.dumps(names)
    helper.set_model_props(model, stated)


def _failure(model, function, offer):
    """Describe how answers differ from the task's, in ONNX Runtime; None without it."""
    try:
        import onnxruntime
    except ImportError:
        return None
    try:
        with quiet():
            session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
            for rows in offer.requests():
                expected = {name: value.numpy() for name, value in function(**rows).items()}
                served = dict(zip(expected, session.run([*expected], rows), strict=True))
                within(TOLERANCE, 0.0, [compare(served, expected)])
    except Exception as error:  # ONNX Runtime raises bare Exceptions, too
        return next(iter(str(error).splitlines()), type(error).__name__).rstrip(".")
    return None
