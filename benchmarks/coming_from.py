"""The examples of docs/coming_from/ for other libraries, run by these, beside what we answer.

    python benchmarks/coming_from.py FOLDER [--only keras_hub] [--environment keras_hub=DIR …]

Of each page, the blocks that are not ours run as they are printed, but for the names of their
sources, in the peer's environment (see benchmarks/requirements), on small models with random
weights that lie in FOLDER. Then the largest differences are printed: of what the peer answered
before training and ours on the same folder, and, where it saved what it had trained, of that loaded
here. A peer whose environment cannot be made is left out, with the reason.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import environments
import numpy as np

REPOSITORY = Path(__file__).parents[1]
TOKENIZER = REPOSITORY / "tests" / "goldens" / "tokenizers" / "wordpiece-uncased"
TEXTS = ["a joy from start to end", "dull, long and loud", "I would see it again", "what a waste"]
SIZE = {"num_layers": 2, "num_heads": 2, "hidden_dim": 32, "intermediate_dim": 48}
# A page → the file of its requirements.
PEERS = {
    "transformers": "transformers_tf",
    "tensorflow_hub": "model_garden",
    "keras_hub": "keras_hub",
    "bert_for_tf2": "bert_for_tf2",
}
# A page → the sources that stand in its blocks, and those here.
SOURCES = {
    "tensorflow_hub": {
        "https://tfhub.dev/tensorflow/bert_en_uncased_preprocess/3": "preprocess",
        "https://tfhub.dev/tensorflow/bert_en_uncased_L-12_H-768_A-12/4": "encoder",
        "vocab_size=30522": "vocab_size=1200",
        "num_layers=12": "num_layers=2",
        "hidden_size=768": "hidden_size=32",
        "num_attention_heads=12": "num_attention_heads=2",
        "inner_dim=3072": "inner_dim=48",
    },
    "bert_for_tf2": {"uncased_L-12_H-768_A-12": "published"},
}
# What the peer does before its first block: TensorFlow Hub's pair, by the program that Google's
# were made with.
BEFORE = {
    "tensorflow_hub": """
import json, os, pathlib
os.environ["TF_USE_LEGACY_KERAS"] = "1"
import numpy as np
import tensorflow as tf
from official.legacy.bert import configs
from official.nlp.tools import export_tfhub_lib
config = configs.BertConfig.from_json_file("published/bert_config.json")
made = export_tfhub_lib.get_bert_encoder(config)
generator = np.random.default_rng(1)
for variable in made.variables:
    variable.assign(generator.normal(0, 0.1, variable.shape) + ("gamma" in variable.name))
saved = tf.train.Checkpoint(encoder=made).save("published/bert_model.ckpt")
export_tfhub_lib.export_model(
    "encoder", bert_config=config, model_checkpoint_path=saved, with_mlm=False,
    vocab_file="published/vocab.txt", do_lower_case=True,
)
export_tfhub_lib.export_preprocessing(
    "preprocess", vocab_file="published/vocab.txt", do_lower_case=True, default_seq_length=32,
    tokenize_with_offsets=False,
)
""",
}
# What it does after its first block: keep numbers.
AFTER = {
    "transformers": """
import numpy as np
fresh = TFAutoModelForSequenceClassification.from_pretrained("my-model")
np.savez("theirs", before=fresh(dict(encoded)).logits, after=model(dict(encoded)).logits)
""",
    "keras_hub": """
import numpy as np
fresh = keras_hub.models.BertTextClassifier.from_preset("my-preset")  # with its head
np.savez("theirs", before=fresh.predict(texts), after=classifier.predict(texts))
""",
    "tensorflow_hub": """
import numpy as np
packed = hub.KerasLayer(PREPROCESS)(tf.constant(texts))
before = hub.KerasLayer(ENCODER)(packed)["pooled_output"]
np.savez("theirs", before=before, after=encoder(packed)["pooled_output"])
""",
    "bert_for_tf2": """
import numpy as np
fresh = bert.BertModelLayer.from_params(params, name="bert")
types, mask = tf.zeros_like(ids), ids != 0
fresh([ids, types])
bert.load_stock_weights(fresh, f"{FOLDER}/bert_model.ckpt")
np.savez("theirs", before=fresh([ids, types], mask=mask)[:, 0],
         after=layer([ids, types], mask=mask)[:, 0])
""",
}


def prepare(page, folder):
    """Write what the page's first block loads, and return the folder."""
    import keras_lm

    tokenizer = keras_lm.tokenizers.Tokenizer.from_preset(TOKENIZER)
    published = folder / "published"
    if page == "tensorflow_hub":
        published.mkdir()
        config = {"hidden_act": "gelu", "hidden_size": 32, "intermediate_size": 48}
        config |= {"max_position_embeddings": 512, "num_attention_heads": 2, "type_vocab_size": 2}
        config |= {"num_hidden_layers": 2, "vocab_size": tokenizer.vocabulary_size}
        config |= {"attention_probs_dropout_prob": 0.1, "hidden_dropout_prob": 0.1}
        (published / "bert_config.json").write_text(json.dumps(config))
        (published / "vocab.txt").write_text("\n".join(tokenizer.vocabulary) + "\n")
        return published
    activation = "gelu" if page == "transformers" else "gelu_tanh"
    backbone = keras_lm.models.BertBackbone(
        tokenizer.vocabulary_size, max_sequence_length=64, activation=activation, **SIZE
    )
    generator = np.random.default_rng(1)
    task = keras_lm.tasks.TextClassifier(backbone, num_classes=2, tokenizer=tokenizer)
    for variable in task.weights:
        variable.assign_add(generator.normal(0, 0.1, variable.shape))
    if page == "transformers":
        task.save_to_huggingface(folder / "my-model")
        return folder / "my-model"
    if page == "keras_hub":
        task.save_to_keras_hub(folder / "my-preset")
        return folder / "my-preset"
    task.save_to_google(published)
    return published


def ours(page, source):
    """Return our answers to the texts, of the same kind as the peer's."""
    import keras_lm

    if page in ("transformers", "keras_hub"):
        task = keras_lm.tasks.TextClassifier.from_preset(source)
        return task.predict(TEXTS, verbose=0)
    encoder = keras_lm.tasks.FeatureExtractor.from_preset(source, sequence_length=32)
    outputs = encoder.backbone(encoder.preprocess({"text": TEXTS}))
    if page == "tensorflow_hub":
        return np.asarray(outputs["pooled_output"])
    return np.asarray(outputs["sequence_output"][:, 0])


def trained(page, folder):
    """Return the folder of what the peer trained, with what the page says to lay beside it."""
    if page in ("transformers", "keras_hub"):
        return folder / "finetuned-there"
    for name in ("bert_config.json", "vocab.txt"):
        (folder / "mine" / name).write_text((folder / "published" / name).read_text())
    return folder / "mine"


def compare(page, folder, python):
    """Run a page's blocks by the peer, and print how far its numbers are from ours."""
    folder.mkdir(parents=True)
    source = prepare(page, folder)
    text = (REPOSITORY / "docs" / "coming_from" / f"{page}.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```py\n(.*?)^```$", text, re.M | re.S)
    for name, other in SOURCES.get(page, {}).items():
        blocks = [block.replace(name, other) for block in blocks]
    program = "\n".join([BEFORE.get(page, ""), blocks[0], AFTER[page], *blocks[1:]])
    (folder / "program.py").write_text(program, encoding="utf-8")
    hidden = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if page == "transformers":  # its classes are of Keras 2
        hidden["TF_USE_LEGACY_KERAS"] = "1"
    done = subprocess.run(
        [python, "program.py"], cwd=folder, env=hidden, capture_output=True, text=True
    )
    if done.returncode:
        (folder / "error.txt").write_text(done.stderr)
        last = (done.stderr.strip().splitlines() or ["nothing"])[-1]
        print(f"{page}: FAILED, {last} ({folder / 'error.txt'})")
        return False
    theirs = np.load(folder / "theirs.npz")
    results = {"before": ours(page, source), "after": ours(page, trained(page, folder))}
    largest = {name: float(np.abs(results[name] - theirs[name]).max()) for name in results}
    moved = float(np.abs(theirs["after"] - theirs["before"]).max())
    print(
        f"{page}: the same folder {largest['before']:.1e}, what it trained (by {moved:.1e}), "
        f"loaded here {largest['after']:.1e}",
        flush=True,
    )
    return max(largest.values()) < 1e-5


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="a new one")
    parser.add_argument("--only", choices=PEERS)
    parser.add_argument("--environment", action="append", default=[], metavar="PAGE=DIR")
    arguments = parser.parse_args()
    given = dict(pair.split("=", 1) for pair in arguments.environment)
    are_equal = True
    for page, requirements in PEERS.items():
        if arguments.only not in (None, page):
            continue
        known = {requirements: given[page]} if page in given else {}
        try:
            python = environments.python_of(requirements, known)
        except environments.InstallError as error:
            print(f"{page}: left out. {error}")
            continue
        are_equal &= compare(page, arguments.folder.resolve() / page, python)
    sys.exit(not are_equal)


if __name__ == "__main__":
    main()
