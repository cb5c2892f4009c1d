"""`keras-lm vocab`: a corpus → a vocabulary of its own."""

import click

from keras_lm.cli import options as opt
from keras_lm.cli.command import Command
from keras_lm.cli.options import Choice, PresetFolder, megabytes, say_rows
from keras_lm.utils.input_files import find_files
from keras_lm.utils.quiet_stderr import quiet

# As the option names them → as `train_vocabulary` does.
KINDS = {
    "wordpiece": "wordpiece",
    "byte-pair": "byte_pair",
    "unigram": "unigram",
    "sentencepiece-bpe": "sentencepiece_bpe",
}
# Special tokens of a family, by role, where they are not those of the kind.
BERT = {"pad": "[PAD]", "unknown": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
ROBERTA = {
    "cls": "<s>",
    "pad": "<pad>",
    "sep": "</s>",
    "unknown": "<unk>",
    "bos": "<s>",
    "eos": "</s>",
    "mask": "<mask>",
}
# Kinds of which T5 can have a vocabulary, and how many spans of a text it can mark.
WITH_SENTINELS = ("unigram", "sentencepiece-bpe")
NUM_SENTINELS = 100


@click.command(
    "vocab", cls=Command, short_help="A corpus → a tokenizer with a vocabulary of its own."
)
@click.argument("files", nargs=-1, required=True)
@opt.option("--output", required=True, type=PresetFolder(), help="The folder to write.")
@opt.option(
    "--kind",
    type=Choice([*KINDS]),
    default="wordpiece",
    help="wordpiece as BERT, byte-pair as GPT-2, unigram as ALBERT, T5 and XLNet.",
)
@opt.option("--size", "vocabulary_size", type=click.IntRange(1), default=30_000)
@opt.option("--lowercase", is_flag=True, help="Lower-case text first; not for byte-pair.")
@opt.option(
    "--special-tokens",
    type=Choice(["bert", "roberta", "t5"]),
    help="Whose special tokens, to pretrain such a model; t5 adds 100 sentinels.  [default: BERT's "
    "for wordpiece, GPT-2's for byte-pair, T5's without sentinels for the others]",
)
@opt.overwrite
def vocab_command(files, output, kind, vocabulary_size, lowercase, special_tokens, overwrite):
    """Learn a vocabulary from text files, one text a line, and write its tokenizer.

    \b
      keras-lm vocab corpus.txt --output my-vocabulary --lowercase
      keras-lm vocab "corpus/**/*.txt" --kind byte-pair --size 50000 --output my-vocabulary
      keras-lm vocab corpus.txt --kind byte-pair --special-tokens roberta --output my-vocabulary
      keras-lm vocab corpus.txt --kind unigram --special-tokens bert --output of-my-albert
      keras-lm vocab corpus.txt --kind unigram --special-tokens t5 --output of-my-t5

    FILES are paths or patterns. The same files give the same vocabulary. From Python,
    keras_lm.tokenizers.Tokenizer.from_preset("my-vocabulary") loads it, to pretrain a model with;
    the files in assets/ can be read by other libraries.
    """
    if lowercase and kind == "byte-pair":
        raise click.UsageError("--lowercase is not for --kind byte-pair, which keeps the case.")
    if special_tokens == "t5" and kind not in WITH_SENTINELS:
        raise click.UsageError(
            f"--special-tokens t5 is not for --kind {kind}: T5's is unigram, or sentencepiece-bpe."
        )
    find_files(files, tables=True)  # raises if there is none, before TensorFlow is imported

    from keras_lm import presets, tokenizers

    try:
        with quiet():
            tokenizer = tokenizers.train_vocabulary(
                KINDS[kind],
                vocabulary_size,
                files=list(files),
                lowercase=lowercase,
                special_tokens={"bert": BERT, "roberta": ROBERTA}.get(special_tokens),
            )
    except ImportError as error:
        raise click.ClickException(str(error)) from error
    if special_tokens == "t5":  # the last id is the first's
        sentinels = [f"<extra_id_{i}>" for i in reversed(range(NUM_SENTINELS))]
        tokenizer = tokenizer.with_special_tokens(sentinels)
    presets.save(output, None, tokenizer=tokenizer)
    say_rows(
        [
            ("vocabulary", f"{output} ({megabytes(output)})"),
            ("tokenizer", f"{type(tokenizer).__name__}, {tokenizer.vocabulary_size:,} entries"),
            ("special tokens", ", ".join(dict.fromkeys(tokenizer.special_tokens.values()))),
        ]
    )
