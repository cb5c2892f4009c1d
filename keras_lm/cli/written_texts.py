"""What `keras-lm evaluate` measures of the texts that a `Seq2SeqLM` writes.

Importing this imports TensorFlow.
"""

import click

from keras_lm import data, metrics

ROUGE = ("rouge1", "rouge2", "rougeL", "rougeLsum")


def make_metrics(names, bleu_tokenizer):
    """Return the metrics that `names` choose, by the name of their column in the results."""
    try:
        chosen = {"bleu": lambda: [metrics.Bleu(bleu_tokenizer)], "chrf": lambda: [metrics.ChrF()]}
        chosen["rouge"] = lambda: [metrics.Rouge(kind) for kind in ROUGE]
        return [metric for name in dict.fromkeys(names) for metric in chosen[name]()]
    except (ImportError, ValueError) as error:
        raise click.ClickException(str(error)) from error


def measure_written(task, examples, batch_size, chosen, search):
    """Return a dict of measures of a `Seq2SeqLM`, by `chosen` metrics of what it writes.

    `search` are arguments of `generate`. With ROUGE there is `lead3_…`, too: the scores of the
    first three sentences of each source, which summaries of news hardly surpass (Nallapati et al.
    2017, https://arxiv.org/abs/1611.04230, section 4).
    """
    texts, targets = examples.texts, examples.labels
    values = task.evaluate(texts, targets, batch_size=batch_size, verbose=0, return_dict=True)
    results = {"texts": len(targets)} | {name: float(value) for name, value in values.items()}
    written = task.generate(texts, batch_size=batch_size, **search)
    for metric in chosen:
        if isinstance(metric, metrics.Rouge):
            continue
        results[metric.name] = _score(metric, targets, written)
        results[f"{metric.name}_signature"] = metric.signature
    rouge = [metric for metric in chosen if isinstance(metric, metrics.Rouge)]
    if not rouge:
        return results
    # Each sentence on a line, as rougeLsum has it; the others take a line's end for a space.
    targets, written, sources = map(_sentences, (targets, written, texts["text"]))
    lead = ["\n".join(text.split("\n")[:3]) for text in sources]
    for prefix, summaries in (("", written), ("lead3_", lead)):
        results |= {prefix + metric.name: _score(metric, targets, summaries) for metric in rouge}
    return results


def _score(metric, targets, written):
    metric.reset_state()
    metric.update_state(targets, written)
    return float(metric.result())


def _sentences(texts):
    return [
        text.decode("utf-8", "replace") for text in data.split_sentences(texts).as_numpy_iterator()
    ]
