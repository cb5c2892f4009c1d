"""Folders of `save_to_huggingface`, converted for ONNX Runtime and OpenVINO: the same labels?

    python benchmarks/other_runtimes.py write FOLDER --tokenizers TOKENIZERS --texts FILE
    PYTHON_WITH_TORCH benchmarks/other_runtimes.py compare FOLDER

`write` makes small random classifiers of texts of five models, over published vocabularies, saves a
folder of each, and answers the first 200 lines of FILE. `compare` needs torch, transformers, onnx,
onnxscript, onnxruntime and openvino, and not keras_lm: it loads a folder by `AutoModel…` and
`AutoTokenizer`, exports the network by `torch.onnx.export` with variable batch and length, converts
that by `openvino.convert_model`, and answers the texts by both, in float32 (by itself, OpenVINO
computes in bfloat16 where the processor has it). TOKENIZERS has a folder of published vocabulary
files for each kind (`wordpiece-uncased`, …).
"""

import argparse
import json
import pathlib

import numpy as np

SIZE = {"num_layers": 2, "num_heads": 2, "hidden_dim": 32, "intermediate_dim": 48}
MODELS = {
    "Bert": "wordpiece-uncased",
    "DistilBert": "wordpiece-uncased",
    "Electra": "wordpiece-uncased",
    "Roberta": "bytebpe-roberta",
    "Albert": "sentencepiece-albert",
}
LABELS = ["bad", "fair", "good"]
NUMBER, BATCH = 200, 8


def write(folder, tokenizers, texts):
    import keras_lm

    texts = [line for line in texts.read_text("utf-8").splitlines() if line.strip()][:NUMBER]
    generator = np.random.default_rng(0)
    for model, kind in MODELS.items():
        tokenizer = keras_lm.tokenizers.Tokenizer.from_preset(tokenizers / kind)
        backbone = getattr(keras_lm.models, f"{model}Backbone")(tokenizer.vocabulary_size, **SIZE)
        task = keras_lm.tasks.TextClassifier(backbone, tokenizer=tokenizer, class_names=LABELS)
        for variable in task.trainable_variables:
            variable.assign_add(generator.normal(0, 0.3, variable.shape).astype("float32"))
        # Centred, so that all labels occur.
        task.head.logits.bias.assign_sub(np.mean(task.predict(texts, verbose=0), axis=0))
        task.save_to_huggingface(folder / model)
        logits = task.predict(texts, verbose=0)
        results = {"texts": texts, "logits": np.asarray(logits).tolist()}
        (folder / model / "answers.json").write_text(json.dumps(results))
        print(f"{model}: written, labels {np.bincount(np.argmax(logits, -1), minlength=3)}")


def compare(folder):
    import onnxruntime
    import openvino
    import torch
    import transformers

    for model in MODELS:
        path = folder / model
        answers = json.loads((path / "answers.json").read_text())
        tokenizer = transformers.AutoTokenizer.from_pretrained(path)
        network = transformers.AutoModelForSequenceClassification.from_pretrained(path).eval()
        batches = [
            dict(tokenizer(answers["texts"][i : i + BATCH], return_tensors="pt", padding=True))
            for i in range(0, NUMBER, BATCH)
        ]
        file = path / "model.onnx"
        names = list(batches[0])
        sizes = (torch.export.Dim("batch"), torch.export.Dim("length", max=512))
        torch.onnx.export(
            network,
            (),
            file,
            kwargs=batches[0],
            input_names=names,
            output_names=["logits"],
            dynamic_shapes={name: dict(enumerate(sizes)) for name in names},
            dynamo=True,
            verbose=False,
        )
        session = onnxruntime.InferenceSession(file)
        precision = {"INFERENCE_PRECISION_HINT": "f32"}
        compiled = openvino.compile_model(openvino.convert_model(file), "CPU", precision)
        arrays = [{name: array.numpy() for name, array in batch.items()} for batch in batches]
        by_onnx = np.concatenate([session.run(["logits"], batch)[0] for batch in arrays])
        by_vino = np.concatenate([compiled(batch)[0] for batch in arrays])
        _say(f"{model}: ONNX Runtime {onnxruntime.__version__}", by_onnx, answers["logits"])
        _say(f"{model}: OpenVINO {openvino.__version__[:8]}", by_vino, answers["logits"])


def _say(name, results, ours):
    same = int((results.argmax(-1) == np.argmax(ours, -1)).sum())
    print(
        f"{name}: {same} of {len(ours)} labels the same, logits {np.abs(results - ours).max():.1e}"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("step", choices=["write", "compare"])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--tokenizers", type=pathlib.Path)
    parser.add_argument("--texts", type=pathlib.Path)
    options = parser.parse_args()
    if options.step == "compare":
        compare(options.folder)
    else:
        write(options.folder, options.tokenizers, options.texts)


if __name__ == "__main__":
    main()
