"""Install the lowest or newest versions that pyproject.toml allows; run what users run first.

    python .ci/versions.py lowest [FOLDER]
    python .ci/versions.py newest [FOLDER]

The environment is made in FOLDER (`build/versions/lowest`, for one). In it, a small task is
fine-tuned, saved and loaded, has LoRA, is exported, served and streamed from, and runs as a
`.tflite`.
"""

import pathlib
import re
import subprocess
import sys
import tempfile
import tomllib
import venv

REPOSITORY = pathlib.Path(__file__).parents[1]
EXTRAS = ("serving", "litert", "knowledge")
BOUND = re.compile(r"([\w.-]+)(?:\[\w+\])?>=([\w.]+)")


def requirements():
    """Return what pyproject.toml requires, with the extras that are tried."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    extras = [each for name in EXTRAS for each in project["optional-dependencies"][name]]
    return [*project["dependencies"], *extras]


def lowest(requirement):
    """Return a requirement of the lowest version that another one allows."""
    name, version = BOUND.match(requirement).groups()
    # The first of a minor version may be one that was withdrawn.
    return f"{name}=={version}" if version.count(".") > 1 else f"{name}=={version}.*"


def install(kind, folder):
    """Make an environment with the versions of a kind, and return its interpreter."""
    venv.create(folder, with_pip=True, clear=True)
    python = folder / "bin" / "python"
    wanted = requirements()
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if kind == "lowest":
        constraints = folder / "constraints.txt"
        constraints.write_text("\n".join(map(lowest, wanted)) + "\n")
        pip += ["--constraint", constraints]
    else:
        pip += ["--upgrade"]
    subprocess.run([*pip, f"{REPOSITORY}[{','.join(EXTRAS)}]"], check=True)
    return python


def main():
    kind, *folder = sys.argv[1:] or [""]
    if kind == "run":
        return run()
    if kind not in ("lowest", "newest"):
        sys.exit(__doc__)
    folder = pathlib.Path(*folder) if folder else REPOSITORY / "build" / "versions" / kind
    python = install(kind, folder.absolute())
    subprocess.run([python, "-m", "pip", "list", "--disable-pip-version-check"], check=True)
    with tempfile.TemporaryDirectory() as place:  # not in the clone, whose modules would be found
        subprocess.run([python, pathlib.Path(__file__).absolute(), "run"], check=True, cwd=place)


# === In the environment ===


def run():
    """Run what users run first, in the current folder."""
    import keras
    import numpy as np

    import keras_lm
    from keras_lm import litert, models, tasks, tokenizers, training
    from keras_lm.knowledge import lemmas
    from keras_lm.serving import Client, Server

    keras.utils.set_random_seed(0)
    texts, labels = ["a good film", "a bad film"] * 8, ["good", "bad"] * 8
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "good", "bad", "film"]
    tokenizer = tokenizers.WordPieceTokenizer(words, lowercase=True)
    backbone = models.BertBackbone(len(words), 1, 2, 16, 32, max_sequence_length=16, dropout=0.0)
    task = tasks.TextClassifier(backbone, tokenizer=tokenizer, class_names=["bad", "good"])
    task.compile(training.AdamW(1e-2))
    history = task.fit(texts, labels, batch_size=4, epochs=3, verbose=0).history
    assert history["loss"][-1] < history["loss"][0], history
    say("fit", f"keras_lm {keras_lm.__version__}, loss {history['loss'][-1]:.3f}")

    task.save_to_preset("preset")
    task.save("task.keras")
    expected = task.classify(texts[:2], verbose=0)["scores"]
    for again in (keras.saving.load_model("task.keras"), tasks.Task.from_preset("preset")):
        actual = again.classify(texts[:2], verbose=0)["scores"]
        np.testing.assert_allclose(actual, expected, atol=1e-5)
    say("save", "preset and .keras give the same answers")

    training.enable_lora(again, 2)
    again.compile(training.AdamW(1e-2))
    again.fit(texts, labels, verbose=0)
    training.save_lora(again, "lora.safetensors")
    other = tasks.Task.from_preset("preset")
    training.load_lora(other, "lora.safetensors")
    answers = [each.classify(texts[:2], verbose=0)["scores"] for each in (again, other)]
    np.testing.assert_allclose(*answers, atol=1e-5)
    say("LoRA", "trained, saved and loaded")

    task.export("served/critic", texts=texts[:2])
    task.export("critic.tflite", texts=texts[:2])
    pool = litert.InterpreterPool("critic.tflite")
    actual = pool.run("serving_default", {"text": texts[:2]})["scores"]
    np.testing.assert_allclose(actual, expected, atol=1e-4)
    say("export", "SavedModel and .tflite give the same answers")

    decoder = models.GPT2Backbone(300, 1, 2, 16, 32, max_sequence_length=32)
    tasks.CausalLM(decoder, tokenizer=tokenizers.ByteTokenizer()).export("served/writer")
    with Server(["served/critic", "served/writer"]) as server:
        for address in (server.rest_url, f"grpc://{server.grpc_address}"):
            scores = Client(address, "critic").predict({"text": texts[:2]})["scores"]
            np.testing.assert_allclose(scores, expected, atol=1e-4)
        pieces = list(Client(server.rest_url, "writer").stream("a", max_new_tokens=4))
    say("serve", f"REST, gRPC, and a stream of {len(pieces)} pieces")

    assert lemmas.key_of("two dogs") == lemmas.key_of("two dog"), lemmas.key_of("two dogs")
    say("lemmas", lemmas.lemmatizer())


def say(what, detail):
    print(f"{what:<8}{detail}", flush=True)


if __name__ == "__main__":
    main()
