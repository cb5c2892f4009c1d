"""Translation learnt from scratch: train on parallel files, and print BLEU of the test set.

    python benchmarks/translation.py FOLDER --from en --to de --epochs 7 --output translator
    python benchmarks/translation.py FOLDER --model rnn-attention --rate 2e-3

FOLDER holds `train`, `val` and `test_2016_flickr` with the ending of each language, such as
`train.en`, plain or `.gz`: Multi30k as it is published (Elliott et al. 2016,
https://arxiv.org/abs/1605.00459). The score is sacreBLEU's, of cased text with punctuation, with
its signature. One JSON line is printed. With `--results runs.jsonl` it is added to that file, and
`runs.svg` shows BLEU over the length of the source for all runs in it (needs matplotlib).
"""

import argparse
import gzip
import json
import time
from pathlib import Path

import keras
import sacrebleu

import keras_lm
from keras_lm.models.sizes import estimate

# Sizes at which 29,000 pairs of captions can be learnt in an hour on two cores.
SIZE = {"num_layers": 3, "num_heads": 4, "hidden_dim": 256, "intermediate_dim": 512}
LENGTH = 64  # tokens; captions have up to 50


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--from", dest="source", default="en")
    parser.add_argument("--to", dest="target", default="de")
    parser.add_argument("--model", choices=list(MODELS), default="transformer")
    parser.add_argument("--vocabulary-size", type=int, default=6000)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--num-beams", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rows", type=int, default=None, help="train on the first so many")
    parser.add_argument("--output", help="where to save the preset")
    parser.add_argument("--results", type=Path, help="file of JSON lines to add the result to")
    options = parser.parse_args()
    keras.utils.set_random_seed(options.seed)
    languages = (options.source, options.target)
    train = [read(options.folder, "train", each)[: options.rows] for each in languages]
    validation = [read(options.folder, "val", each) for each in languages]
    test = [read(options.folder, "test_2016_flickr", each) for each in languages]
    tokenizer = keras_lm.tokenizers.train_vocabulary(
        "unigram", options.vocabulary_size, texts=train[0] + train[1]
    )
    backbone = MODELS[options.model](tokenizer.vocabulary_size)
    task = keras_lm.tasks.Seq2SeqLM(backbone, tokenizer=tokenizer, sequence_length=LENGTH)
    optimizer = keras_lm.training.AdamW(options.rate, weight_decay=0.0, beta_2=0.98)
    task.compile(optimizer, loss=keras_lm.objectives.MaskedCrossentropy(label_smoothing=0.1))
    start = time.perf_counter()
    task.fit(
        *train,
        epochs=options.epochs,
        batch_size=options.batch_size,
        validation_data=tuple(validation),
        verbose=2,
    )
    seconds = time.perf_counter() - start
    if options.output:
        task.save_to_preset(options.output)
    result = {"model": options.model, "parameters": backbone.count_params()}
    result |= {"epochs": options.epochs, "training_s": round(seconds)}
    result["training_flops"] = options.epochs * flops_of_epoch(backbone, tokenizer, train)
    for beams in sorted({1, options.num_beams}):
        texts = task.generate(test[0], num_beams=beams, max_new_tokens=LENGTH - 1)
        bleu = sacrebleu.metrics.BLEU()
        score = bleu.corpus_score(texts, [test[1]])
        result[f"bleu, {beams} beams"] = round(score.score, 2)
        result[f"by source length, {beams} beams"] = by_length(test, texts)
    result["signature"] = str(bleu.get_signature())
    print(json.dumps(result), flush=True)
    if options.results:
        with options.results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(result) + "\n")
        draw(options.results)
    for source, text, reference in list(zip(test[0], texts, test[1], strict=True))[:5]:
        print(f"{source}\n  {text}\n  {reference}", flush=True)


def transformer(vocabulary_size):
    return keras_lm.models.TransformerBackbone(vocabulary_size, dropout=0.1, **SIZE)


def recurrent(attention):
    def make(vocabulary_size):
        return keras_lm.models.RNNEncoderDecoderBackbone(
            vocabulary_size, num_layers=1, hidden_dim=256, cell="gru", attention=attention
        )

    return make


MODELS = {
    "transformer": transformer,
    "rnn": recurrent(None),
    "rnn-attention": recurrent("general"),
}


def read(folder, part, language):
    """Return the lines of a file, plain or compressed."""
    path = folder / f"{part}.{language}"
    if path.exists():
        return path.read_text(encoding="utf-8").splitlines()
    with gzip.open(f"{path}.gz", "rt", encoding="utf-8") as file:
        return file.read().splitlines()


def flops_of_epoch(backbone, tokenizer, train):
    """Return the FLOPs of an epoch of training, without padding, as of Vaswani et al.'s table 2."""
    sources, targets = (tokenizer(lines).row_lengths().numpy() + 1 for lines in train)
    # For a token of a source and one of a target, each attending to as many as a mean text has.
    both = (sources.sum() + targets.sum()) / 2
    config = backbone.config | {"max_sequence_length": round(both / len(sources))}
    return float(both) * estimate(type(backbone), **config)["flops_per_token"]["training"]


def by_length(test, texts, most=(8, 12, 16, 24, 100)):
    """Return BLEU by the most words of a source, as figure 2 of Bahdanau et al. 2015."""
    results, least = {}, 0
    for end in most:
        rows = [i for i, source in enumerate(test[0]) if least < len(source.split()) <= end]
        if rows:
            chosen = [texts[i] for i in rows], [[test[1][i] for i in rows]]
            results[f"{least + 1}-{end}"] = round(sacrebleu.corpus_bleu(*chosen).score, 1)
        least = end
    return results


def draw(path):
    """Draw BLEU by source length for the runs in a file, as figure 2 of Bahdanau et al. 2015."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.5), layout="constrained")
    axes = figure.add_subplot(xlabel="words of the source", ylabel="BLEU, test_2016")
    for line in path.read_text("utf-8").splitlines():
        run = json.loads(line)
        results = run[max(key for key in run if key.startswith("by source length"))]
        axes.plot(list(results), list(results.values()), marker="o", label=run["model"])
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})


if __name__ == "__main__":
    main()
