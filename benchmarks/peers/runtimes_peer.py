"""ONNX Runtime and OpenVINO, with the fast tokenizer: MiniLM's classifier exported from PyTorch."""

import json
from pathlib import Path

import inputs
import numpy as np
from protocol import num_cores, serve

NAMES = ["input_ids", "attention_mask", "token_type_ids"]
LONGEST = 512


def runtimes(shapes, minilm, exports, scratch, calls, variant):
    """From strings to labels at several shapes; variants are `"onnxruntime int8"` and the like."""
    runtime, precision = variant.split()
    encode = make_tokenizer(minilm)
    folder = Path(scratch) / "onnx"
    model = write_onnx(minilm, folder)
    if runtime == "onnxruntime":
        run = open_onnxruntime(model, precision, folder)
    else:
        run = open_openvino(model, precision, lambda: encode(read_shapes(shapes)["32×16–28"]))
    names = ["negative", "positive"]

    def answer(texts):
        def once():
            logits = run(encode(texts))
            scores = np.exp(logits - logits.max(-1, keepdims=True))
            scores /= scores.sum(-1, keepdims=True)
            return [names[i] for i in scores.argmax(-1).tolist()], scores

        return once

    texts = read_shapes(shapes)
    points = {tuple(shape.split("×")): answer(rows) for shape, rows in texts.items()}
    return inputs.at_points(points, calls)


def read_shapes(path):
    """Return the dict of shape → texts of a file."""
    return json.loads(Path(path).read_text(encoding="utf-8"))


def make_tokenizer(minilm):
    """Return a callable from texts to the arrays of a batch, padded to its longest text."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(Path(minilm) / "tokenizer.json"))
    tokenizer.enable_truncation(LONGEST)
    tokenizer.enable_padding()

    def encode(texts):
        rows = tokenizer.encode_batch(texts)
        columns = (
            [getattr(row, name) for row in rows] for name in ("ids", "attention_mask", "type_ids")
        )
        return {name: np.array(column, "int64") for name, column in zip(NAMES, columns)}

    return encode


def write_onnx(minilm, folder):
    """Return the path of the classifier in ONNX; the first contender writes it."""
    path = folder / "model.onnx"
    if path.exists():
        return path
    import torch
    from transformers import BertForSequenceClassification

    folder.mkdir(exist_ok=True)
    torch.manual_seed(0)  # for the head
    network = BertForSequenceClassification.from_pretrained(minilm, num_labels=2).eval()
    ids = torch.ones(2, 8, dtype=torch.int64)
    batch = {name: {0: "batch", 1: "length"} for name in NAMES}
    torch.onnx.export(
        network,
        (ids,),
        str(path),
        kwargs={"attention_mask": ids, "token_type_ids": ids * 0},
        input_names=NAMES,
        output_names=["logits"],
        dynamic_axes=batch | {"logits": {0: "batch"}},
        opset_version=17,
        dynamo=False,
    )
    return path


def open_onnxruntime(model, precision, folder):
    """Return a callable from arrays to logits; matrices are fused as for BERT, perhaps in int8."""
    import onnxruntime
    from onnxruntime.quantization import quantize_dynamic
    from onnxruntime.transformers.optimizer import optimize_model

    path = folder / f"{precision}.onnx"
    if precision == "int8":
        quantize_dynamic(str(model), str(path))
    else:
        optimize_model(str(model), "bert", num_heads=12, hidden_size=384).save_model_to_file(
            str(path)
        )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = num_cores()
    # Its threads would spin until the next call, and take the cores from the other contenders.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])
    return lambda arrays: session.run(["logits"], arrays)[0]


def open_openvino(model, precision, samples):
    """Return a callable from arrays to logits; for int8, `samples` returns a batch to calibrate."""
    import openvino

    core = openvino.Core()
    network = core.read_model(str(model))
    if precision == "int8":
        import nncf

        rows = [{n: a[i : i + 1] for n, a in samples().items()} for i in range(32)]
        network = nncf.quantize(
            network, nncf.Dataset(rows), model_type=nncf.ModelType.TRANSFORMER, subset_size=32
        )
    hint = {"bfloat16": "bf16"}.get(precision, "f32")
    settings = {
        "INFERENCE_PRECISION_HINT": hint,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": num_cores(),
    }
    request = core.compile_model(network, "CPU", settings).create_infer_request()
    return lambda arrays: request.infer(arrays, share_inputs=True)["logits"]


FUNCTIONS = {"runtimes": runtimes}

if __name__ == "__main__":
    serve(FUNCTIONS, ["onnxruntime", "openvino", "nncf", "torch", "transformers", "tokenizers"])
