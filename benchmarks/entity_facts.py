"""ERNIE: facts that only the table of entities knows, told of entities that training never named.

    python benchmarks/entity_facts.py [--seeds 3]

A world of people with names of two made-up words, each of one of four trades. A graph says who has
which trade, beside places that do not matter, and TransE makes vectors of it. Texts name a person
and say nothing about the trade; the question is the trade, of people whom no training text names.
Three contestants, of one size and trained alike: with the entities; without them; and with them,
but each has the vector of another.
"""

import itertools
import random
import time

import click
import keras
import numpy as np

import keras_lm

PEOPLE, HELD_OUT = 400, 100
TRADES = ("baker", "smith", "weaver", "sailor")
PLACES = 20
TEMPLATES = (
    "{} came in the evening .",
    "we wrote to {} , and waited .",
)
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
SIZE = {"num_layers": 2, "num_heads": 4, "hidden_dim": 64, "intermediate_dim": 128}
WIDTH = 32  # of an entity's vector
HAS_TRADE, LIVES_IN = range(2)


def make_world(seed):
    """Return the names of people, their trades by number, and their vectors (N, E)."""
    draw = random.Random(seed)
    syllables = ["".join(pair) for pair in itertools.product("bdfgklmnprst", "aeiou")]
    words = ["".join(pair) for pair in draw.sample([*itertools.product(syllables, repeat=2)], 60)]
    pairs = draw.sample([*itertools.product(words[:30], words[30:])], PEOPLE)
    trades = [draw.randrange(len(TRADES)) for _ in pairs]
    triples = []
    for person, trade in enumerate(trades):
        triples.append((person, HAS_TRADE, PEOPLE + trade))
        triples.append((person, LIVES_IN, PEOPLE + len(TRADES) + draw.randrange(PLACES)))
    number = PEOPLE + len(TRADES) + PLACES
    trans_e = keras_lm.knowledge.TransE(number, 2, dim=WIDTH, seed=seed)
    trans_e.fit(triples, epochs=200, batch_size=128)
    # Of about the size of a token's vector, as weights that were never trained expect it.
    vectors = trans_e.entities[:PEOPLE] * WIDTH**0.5
    return [" ".join(pair) for pair in pairs], trades, vectors


def make_tokenizer(names, with_mentions):
    words = sorted({word for text in [*names, *TEMPLATES] for word in text.split()} - {"{}"})
    tokenizers, vocabulary = keras_lm.tokenizers, [*SPECIAL, *words]
    if not with_mentions:
        return tokenizers.WordPieceTokenizer(vocabulary, lowercase=True)
    ids = [f"Q{number}" for number in range(len(names))]
    mentions = dict(zip(names, ids, strict=True))
    return tokenizers.EntityTokenizer(vocabulary, True, mentions=mentions, entities=ids)


def contest(kind, seed, epochs):
    """Return the accuracy on people of the training texts and on those that were held out."""
    names, trades, vectors = make_world(seed)
    keras.utils.set_random_seed(seed)
    tokenizer = make_tokenizer(names, with_mentions="entities" in kind)
    if "others" in kind:
        vectors = np.random.default_rng(seed).permutation(vectors)
    size = tokenizer.vocabulary_size
    backbone = keras_lm.models.ErnieBackbone(size, **SIZE, entity_dim=WIDTH)
    backbone = backbone.with_entities(vectors)
    task = keras_lm.tasks.TextClassifier(
        backbone, tokenizer=tokenizer, class_names=TRADES, sequence_length=16
    )
    task.compile(optimizer=keras_lm.training.AdamW(1.5e-3))

    def rows(people):
        texts = [template.format(names[person]) for person in people for template in TEMPLATES]
        return texts, [TRADES[trades[person]] for person in people for _ in TEMPLATES]

    seen, held_out = range(HELD_OUT, PEOPLE), range(HELD_OUT)
    task.fit(*rows(seen), batch_size=32, epochs=epochs, verbose=0)
    return [
        task.evaluate(*rows(people), verbose=0, return_dict=True)["accuracy"]
        for people in (seen, held_out)
    ]


KINDS = ("ERNIE, entities", "ERNIE, none", "ERNIE, entities with others' vectors")


@click.command(help=__doc__)
@click.option("--seeds", type=click.IntRange(1), default=3)
@click.option("--epochs", type=click.IntRange(1), default=30)
def main(seeds, epochs):
    start = time.monotonic()
    print("| | people of the training texts | held-out people |\n| --- | ---: | ---: |")
    for kind in KINDS:
        results = zip(*(contest(kind, seed, epochs) for seed in range(seeds)), strict=True)
        cells = [", ".join(f"{value:.3f}" for value in each) for each in map(list, results)]
        print(f"| {kind} | {' | '.join(cells)} |", flush=True)
    print(f"\nchance: {1 / len(TRADES)}; {time.monotonic() - start:.0f} s for {seeds} seeds")


if __name__ == "__main__":
    main()
