"""A small T5: span corruption on film reviews, then two tasks at once, beside no pretraining.

    pip install 'keras-lm[demo,vocab]'
    python benchmarks/text_to_text.py --trec TREC --steps 6000

The vocabulary and the network, 2 + 2 layers and 128 wide, are learned from the reviews of IMDB.
Then one `Seq2SeqLM` learns from a mixture of film reviews of Rotten Tomatoes (good or bad) and the
questions of TREC (what they ask for), all as texts, and writes its answers for held-out rows of
both; a row is right if its text is. One JSON line is printed for each of the two models.
"""

import json
import random
import time
from collections import Counter
from pathlib import Path

import click
import keras
import numpy as np
from objectives import film_reviews, questions
from pretraining import HELD_OUT, read_reviews

from keras_lm import data, models, objectives, tasks, tokenizers, training

SIZE = {"num_layers": 2, "num_heads": 4, "hidden_dim": 128, "intermediate_dim": 512}
# By TREC's classes in the numbers of harvardnlp/sent-conv-torch.
ASKED_FOR = ("description", "entity", "abbreviation", "person", "place", "number")
WORDS = 40  # of a review that make a text
TEST = 500  # rows of a task


@click.command()
@click.option("--trec", type=click.Path(path_type=Path), required=True, help="TREC.train.all's.")
@click.option("--vocabulary-size", default=4000, show_default=True)
@click.option("--sequence-length", default=64, show_default=True)
@click.option("--steps", default=6000, show_default=True, help="Of pretraining.")
@click.option("--fine-tuning-steps", default=2000, show_default=True, help="On the mixture.")
@click.option("--batch-size", default=32, show_default=True)
@click.option("--rate", default=1e-3, show_default=True)
def main(trec, vocabulary_size, sequence_length, steps, fine_tuning_steps, batch_size, rate):
    """Pretrain, fine-tune on two tasks at once, and print what is right."""
    reviews = read_reviews()
    sentinels = [f"<extra_id_{i}>" for i in reversed(range(16))]  # the last id is the first's
    tokenizer = tokenizers.train_vocabulary(
        "unigram", vocabulary_size, texts=reviews[HELD_OUT:]
    ).with_special_tokens(sentinels)
    rows = {"film reviews": film_reviews(None), "TREC": asked_for(trec)}
    for number in (0, steps):
        keras.utils.set_random_seed(0)
        backbone = models.T5Backbone(tokenizer.vocabulary_size, dropout=0.1, **SIZE)
        task = tasks.Seq2SeqLM(
            backbone, tokenizer=tokenizer, sequence_length=sequence_length, target_length=8
        )
        results, start = {"steps": number, "parameters": backbone.count_params()}, time.time()
        if number:
            results |= pretrain(task, reviews, sequence_length, number, batch_size, rate)
        results |= fine_tune(task, rows, fine_tuning_steps, batch_size, rate)
        click.echo(json.dumps(results | {"s": round(time.time() - start)}))


def asked_for(folder):
    """Questions, and a word for what each asks for."""
    return [(text, ASKED_FOR[int(label)]) for text, label in questions(folder)]


def in_parts(reviews):
    """Return texts of some words each."""
    words = (review.split() for review in reviews)
    return [" ".join(all_[i : i + WORDS]) for all_ in words for i in range(0, len(all_), WORDS)]


def pretrain(task, reviews, sequence_length, steps, batch_size, rate):
    """Train the task's weights by span corruption; return the loss of held-out reviews."""
    pretrainer = tasks.Pretrainer(
        task.backbone,
        [objectives.SpanCorruption(seed=1)],
        {"seq2seq_lm": task.head},
        tokenizer=task.tokenizer,
        sequence_length=sequence_length,
    )
    pretrainer.compile(optimizer=training.AdamW(training.WarmupLinearDecay(rate)))
    texts = in_parts(reviews[HELD_OUT:])
    random.Random(0).shuffle(texts)
    epochs = -(-steps * batch_size // len(texts))
    most = steps * batch_size // epochs
    pretrainer.fit(texts[:most], batch_size=batch_size, epochs=epochs, verbose=0)
    held_out = in_parts(reviews[:HELD_OUT])[:2048]
    scores = pretrainer.evaluate(held_out, verbose=0, return_dict=True)
    return {name: round(float(value), 3) for name, value in scores.items()} | {
        "entropy": round(entropy(pretrainer, held_out), 3)
    }


def entropy(pretrainer, texts):
    """Nats of a token of the targets by itself: what knowing frequencies alone comes to."""
    _, labels = pretrainer.objectives[0].corrupt(pretrainer.preprocess(texts))
    labels = np.ravel(labels)
    counts = np.array([*Counter(labels[labels >= 0].tolist()).values()])
    shares = counts / counts.sum()
    return -float(np.sum(shares * np.log(shares)))


def fine_tune(task, rows, steps, batch_size, rate):
    """Train on all tasks at once; return the share of right texts of each, and of its majority."""
    mixture, test = {}, {}
    for name, pairs in rows.items():
        texts, targets = zip(*random.Random(0).sample(pairs, len(pairs)), strict=True)
        sources = data.text_to_text(f"{name}: {{text}}", text=texts)
        test[name] = sources[:TEST], targets[:TEST]
        mixture[name] = sources[TEST:], targets[TEST:]
    task.compile(optimizer=training.AdamW(training.WarmupLinearDecay(rate)))
    task.fit(data.mix_tasks(mixture).batch(batch_size), steps_per_epoch=steps, verbose=0)
    results = {}
    for name, (sources, targets) in test.items():
        texts = task.generate(sources, max_new_tokens=6)
        right = [text == target for text, target in zip(texts, targets, strict=True)]
        results[name] = round(100 * float(np.mean(right)), 1)
        results[f"{name}, majority"] = 100 * max(Counter(targets).values()) / TEST
    return results


if __name__ == "__main__":
    main()
