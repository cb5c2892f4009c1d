"""Options of vectors and of written texts, for `keras-lm predict`."""

import click

from keras_lm.cli import shared_options as opt
from keras_lm.cli.types import Choice, FloatRange

VECTORS = ("layers", "pooling", "normalize", "prompt")
# As arguments of `generate`; the first line is of a Seq2SeqLM alone, the second of a CausalLM.
OF_TARGETS = ("coverage_penalty", "prefix", "forbidden")
OF_PROMPTS = ("prompt_lookup",)
WRITING = (
    *("num_beams", "length_penalty", "max_new_tokens", "temperature", "top_k", "top_p", "seed"),
    *("repetition_penalty", "no_repeat_ngram_size", "stop", "num_return_sequences"),
    *(*OF_TARGETS, *OF_PROMPTS),
)


class Layers(click.ParamType):
    """A name, the index of a hidden state, or several of these, separated by commas."""

    name = "name or numbers"

    def convert(self, value, param, ctx):
        """Return an int or a list of int, else the string; `FeatureExtractor` knows the names."""
        try:
            numbers = [int(part) for part in value.split(",")]
        except ValueError:
            return value
        return numbers if "," in value else numbers[0]


vector_options = opt.together(
    opt.option(
        "--layers",
        type=Layers(),
        help="embedding, first, second_to_last, last, sum_all, sum_last_four, concat_last_four, "
        "concat_embedding_last, scalar_mix, all, the number of a hidden state (0 is the embedding, "
        "-1 the last), or several numbers, such as 0,-1. all and several numbers give a vector for "
        "each.  [default: last]",
    ),
    opt.option(
        "--pooling",
        type=Choice(["first", "last", "mean", "mean_sqrt_len", "weighted_mean", "max", "none"]),
        help="Over the tokens of a text; none gives a vector a token.  [default: what SOURCE "
        "states, else mean]",
    ),
    opt.option(
        "--normalize/--no-normalize",
        default=None,
        help="Scale each vector to length 1.  [default: what SOURCE states, else not]",
    ),
    opt.option(
        "--prompt",
        help="What is put before each text, such as 'query: '.  [default: what SOURCE states]",
    ),
)
writing_options = opt.together(
    opt.search,
    opt.option(
        "--max-new-tokens",
        type=click.IntRange(1),
        help="The longest text.  [default: what MODEL states; else 50, or the target length of a "
        "Seq2SeqLM]",
    ),
    opt.option("--temperature", type=FloatRange(0, min_open=True), help="Draw tokens at random."),
    opt.option(
        "--top-k", type=click.IntRange(1), help="Draw from this many likeliest; with --temperature."
    ),
    opt.option(
        "--top-p",
        type=FloatRange(0, 1, min_open=True),
        help="Draw from the likeliest that have this probability together; with --temperature.",
    ),
    opt.option("--seed", type=click.IntRange(0), help="For the same draw again."),
    opt.option(
        "--repetition-penalty",
        type=FloatRange(0, min_open=True),
        help="Above 1, tokens that have occurred are less likely.",
    ),
    opt.option(
        "--no-repeat-ngram-size",
        type=click.IntRange(0),
        help="Write no sequence of this many tokens twice, such as 3 for summaries.",
    ),
    opt.option(
        "--stop",
        multiple=True,
        metavar="TEXT",
        help="A text ends before it, also if it is a special token; several times for several.",
    ),
    opt.option(
        "--num-return-sequences",
        type=click.IntRange(1),
        help="This many texts for each, the best first, if there are beams or a temperature.",
    ),
    opt.option("--prefix", help="What every text of a Seq2SeqLM begins with."),
    opt.option(
        "--forbidden",
        multiple=True,
        metavar="TEXT",
        help="What no text of a Seq2SeqLM has; several times for several.",
    ),
    opt.option(
        "--prompt-lookup",
        type=click.IntRange(0),
        metavar="TOKENS",
        help="For a CausalLM: propose this many tokens a step, from what the prompt repeats. The "
        "text is the same.",
    ),
)
