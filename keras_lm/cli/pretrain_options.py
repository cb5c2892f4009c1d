"""The options of `keras-lm pretrain`, in groups."""

import click

from keras_lm.cli import shared_options as opt
from keras_lm.cli.objective_options import ALL_FORMS, OBJECTIVES
from keras_lm.cli.types import INPUT_FILE, Choice, FloatRange, Source

DEFAULT_SIZE = "gpt2_base_en"

model_options = opt.together(
    opt.option(
        "--from",
        "source",
        metavar="SOURCE",
        type=Source(),
        help="Preset or checkpoint whose training to go on with: its network, tokenizer and heads.",
    ),
    opt.option(
        "--add-words",
        type=INPUT_FILE,
        help="File of words, one a line, for the vocabulary of --from: each becomes one token, "
        "whose embedding starts as the mean of its pieces'.",
    ),
    opt.option(
        "--vocabulary",
        metavar="SOURCE",
        type=Source(),
        help="Without --from: preset or checkpoint whose tokenizer to take, such as one of "
        "keras-lm vocab.",
    ),
    opt.option(
        "--size", help=f"Without --from: name of a size, to vary.  [default: {DEFAULT_SIZE}]"
    ),
    opt.option("--num-layers", type=click.IntRange(1), help="That of the size if omitted."),
    opt.option("--hidden-dim", type=click.IntRange(1), help="The same; inner layers scale."),
    opt.option("--num-heads", type=click.IntRange(1), help="The same."),
    opt.option("--sequence-length", type=click.IntRange(2), help="Tokens read at once; the same."),
    opt.option(
        "--dropout",
        type=FloatRange(0, 1, max_open=True),
        help="Helps where the same text is read in many epochs.  [default: the model's own, but 0 "
        "for a causal model from random weights]",
    ),
)

objective_option = opt.option(
    "--objective",
    "objectives",
    multiple=True,
    type=Choice([*OBJECTIVES]),
    help="What to train on; several times for several at once.  [default: what the model was "
    "pretrained with, but nothing on pairs of sentences if documents are single lines]",
)
streams_option = opt.option(
    "--streams",
    is_flag=True,
    help="Read the corpus in order, in as many streams as --batch-size, with the model's state or "
    "memory carried along: as recurrent models, Transformer-XL and XLNet were trained.",
)
document_options = opt.together(
    opt.option(
        "--document",
        type=Choice(["line", "block", "file"]),
        default="line",
        help="What is one document: a line, the lines between blank ones, a file.",
    ),
    opt.option(
        "--split-sentences",
        is_flag=True,
        help="A sentence also ends by rule, at .!? before a capital letter; otherwise with its "
        "line.",
    ),
    opt.option(
        "--form",
        type=Choice(ALL_FORMS),
        help="How an encoder's rows are filled.  [default: as the objectives need, otherwise "
        "full-sentences]",
    ),
    opt.option(
        "--short-share",
        type=FloatRange(0, 1),
        default=0.0,
        help="Share of an encoder's rows that get a random shorter length; BERT's is 0.1.",
    ),
    opt.option(
        "--single-share",
        type=FloatRange(0, 1),
        default=0.0,
        help="Share of segment pairs that become one segment; ELECTRA's is 0.1.",
    ),
)

data_options = opt.together(
    objective_option,
    opt.option(
        "--mask-rate",
        type=FloatRange(0, 1, min_open=True),
        help="Share of the tokens that are masked.  [default: 0.15]",
    ),
    opt.option(
        "--whole-words", is_flag=True, help="For masked-lm: mask all tokens of a word, or none."
    ),
    opt.option(
        "--masks-per-text",
        type=click.IntRange(1),
        help="Static masks: this many for each text, the same in every epoch.  [default: new "
        "masks in every step]",
    ),
    opt.option(
        "--mean-span",
        type=FloatRange(1),
        help="For span-corruption: tokens of a span on average.  [default: 3]",
    ),
    opt.option(
        "--generator",
        metavar="SOURCE",
        type=Source(),
        help="For replaced-tokens, with --from: the generator to go on with.  [default: that in "
        "the folder generator of --from, otherwise a new one]",
    ),
    opt.option(
        "--generator-size",
        type=FloatRange(0, min_open=True),
        help="For replaced-tokens: a new generator's width beside the model's.  [default: 0.25]",
    ),
    opt.option(
        "--teacher",
        metavar="SOURCE",
        type=Source(),
        help="For distillation: the masked language model to learn from. Without --from the "
        "student begins with half of its layers, or the kind and number of --size.",
    ),
    document_options,
    streams_option,
    opt.option(
        "--own-shards",
        is_flag=True,
        help="Of several processes, each reads windows of its own from a folder of shards, and "
        "opens no others; otherwise all read everything.",
    ),
    opt.option(
        "--validation", multiple=True, metavar="FILE", help="To measure on after each epoch."
    ),
)

training_options = opt.together(
    opt.option("--epochs", type=click.IntRange(1), default=1),
    opt.option(
        "--steps",
        type=click.IntRange(1),
        help="Length of the run in steps, as papers state it, instead of --epochs.",
    ),
    opt.option("--batch-size", type=click.IntRange(1), default=16),
    opt.option(
        "--micro-batch-size",
        type=click.IntRange(1),
        help="Rows computed at a time, if a batch exceeds the memory; the steps are the same.",
    ),
    opt.option(
        "--optimizer",
        type=Choice(["adamw", "lamb", "adafactor"]),
        default="adamw",
        help="adafactor has T5's schedule: the rate stays until one over the root of the steps is "
        "lower.",
    ),
    opt.option(
        "--learning-rate",
        type=FloatRange(0, min_open=True),
        help="At its peak.  [default: by the model's width, with --from 5e-5 for BERT-base, else "
        "1e-4 for BERT-base and 6e-4 for GPT-2; 0.01 for adafactor]",
    ),
    opt.option(
        "--warmup",
        type=FloatRange(0, 1, max_open=True),
        default=0.1,
        help="Share of the steps in which the learning rate rises; then it falls to zero.",
    ),
    opt.option(
        "--weight-decay",
        type=FloatRange(0),
        help="[default: 0.01; 0.1 for a causal model from random weights]",
    ),
    opt.option(
        "--beta-2",
        type=FloatRange(0, 1, max_open=True),
        help="[default: 0.999; 0.99 for such a one]",
    ),
    opt.option(
        "--epsilon", type=FloatRange(0, min_open=True), help="[default: 1e-6; 1e-8 for such a one]"
    ),
    opt.option(
        "--bias-correction/--no-bias-correction",
        default=True,
        help="Whether the optimizer's moments are corrected for their start at zero; not in the "
        "code of BERT, ALBERT and ELECTRA.",
    ),
    opt.option("--seed", type=int, default=0),
    opt.option(
        "--dtype",
        type=Choice(["float32", "mixed_bfloat16", "mixed_float16"]),
        default="float32",
        help="What to compute in.",
    ),
    opt.tensorboard,
    opt.option(
        "--save-every",
        "minutes",
        type=FloatRange(0),
        default=5.0,
        metavar="MINUTES",
        help="How often to save where the run is, besides after each epoch.",
    ),
)
