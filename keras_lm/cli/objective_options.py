"""The objectives of `keras-lm pretrain` by name: their options, and the rows that they read.

A further objective is a line of `OBJECTIVES`, and one of `FORMS` if it needs rows of its own.
"""

import dataclasses

import click

from keras_lm.cli import options as opt
from keras_lm.cli.options import Choice, FloatRange, flag_of

# As the option names them → the classes in `keras_lm.objectives`, and their arguments → options.
# In the order in which they corrupt a batch.
MASKING = {"rate": "mask_rate", "masks_per_text": "masks_per_text"}
MASKED_LM = MASKING | {"whole_words": "whole_words"}
OBJECTIVES = {
    "masked-lm": ("MaskedLanguageModel", MASKED_LM),
    "n-grams": ("MaskedNGrams", MASKING),
    "spans": ("MaskedSpans", MASKING),
    "span-boundary": ("SpanBoundary", {}),
    "next-sentence": ("NextSentence", {}),
    "sentence-order": ("SentenceOrder", {}),
    "entity-alignment": ("EntityAlignment", {}),
    "replaced-tokens": ("ReplacedTokens", {}),
    "distillation": ("MaskedLMDistillation", MASKED_LM | {"teacher": "teacher"}),
    "causal-lm": ("CausalLanguageModel", {}),
    "span-corruption": ("SpanCorruption", {"rate": "mask_rate", "mean_span": "mean_span"}),
    "permutation-lm": ("PermutationLanguageModel", {}),
}
# What goes with no other objective.
ALONE = ("causal-lm", "replaced-tokens", "distillation", "span-corruption", "permutation-lm")
# What an objective needs of a vocabulary, if not a mask.
NEEDED = {
    "causal-lm": "in the role of eos",
    "span-corruption": "<extra_id_0>",
    "permutation-lm": "in the role of cls",
}
# Options of the generator of replaced tokens.
GENERATOR = ("mask_rate", "generator", "generator_size")
# The form of rows that an objective needs; `DEFAULT_FORM` serves all others.
FORMS = {"next-sentence": "next-sentence", "sentence-order": "segment-pairs"}
DEFAULT_FORM = "full-sentences"
ALL_FORMS = ("single", "doc-sentences", DEFAULT_FORM, "segment-pairs", "next-sentence")
PAIRS = tuple(FORMS.values())

# What a model does that an objective is for.
WAYS = {"causal-lm": "reads from left to right", "span-corruption": "writes a text for a text"}
IN_BOTH_DIRECTIONS = "reads in both directions"

objective_option = opt.option(
    "--objective",
    "objectives",
    multiple=True,
    type=Choice([*OBJECTIVES]),
    help="What to train on; may be repeated.  [default: what the model was pretrained with, but "
    "nothing on pairs of sentences if documents are single lines]",
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowFormOptions:
    """What documents are, and how an encoder's rows are filled with them."""

    document: str = "line"
    split_sentences: bool = False
    form: str | None = None
    short_share: float = 0.0
    single_share: float = 0.0

    @property
    def has_sentences(self):
        """Whether a document may have several sentences."""
        return self.document != "line" or self.split_sentences


@dataclasses.dataclass(frozen=True, kw_only=True)
class ObjectiveOptions(RowFormOptions):
    """What to train on. What only matters in training, a command may leave as it is here."""

    objectives: tuple[str, ...] = ()
    streams: bool = False
    mask_rate: float | None = None
    whole_words: bool = False
    masks_per_text: int | None = None
    mean_span: float | None = None
    generator: str | None = None
    generator_size: float | None = None
    teacher: str | None = None


def check_objectives(options):
    """Refuse objectives and options that do not go together; imports no TensorFlow."""
    names = options.objectives
    if len(names) > len(set(names)):
        raise click.UsageError("--objective names one twice.")
    for alone in ALONE:
        if alone in names and len(names) > 1:
            raise click.UsageError(f"--objective {alone} goes with no other.")
    if "distillation" in names and not options.teacher:
        raise click.UsageError("--objective distillation learns from a --teacher: give one.")
    forms = {FORMS[name] for name in names if name in FORMS}
    if len(forms) > 1:
        raise click.UsageError(
            "--objective next-sentence and sentence-order read different pairs of texts: choose "
            "one."
        )
    if options.generator and options.generator_size:
        raise click.UsageError("--generator has a size: leave out --generator-size.")
    form = options.form
    if form and forms and form not in forms:
        raise click.UsageError(
            f"--form {form} is not what --objective {' '.join(names)} reads: leave it out."
        )
    if "causal-lm" in names:
        for option in ("form", "split_sentences", "short_share", "single_share"):
            if getattr(options, option):
                raise click.UsageError(
                    f"{flag_of(option)} is not for --objective causal-lm, which reads "
                    "documents as they are."
                )
    if (form in PAIRS or forms) and not options.has_sentences:
        raise click.UsageError(
            "Pairs of sentences are wanted, and with --document line a document has one sentence: "
            "add --split-sentences, or --document block."
        )
    users = {}
    for name, (_, arguments) in OBJECTIVES.items():
        for option in arguments.values():
            users.setdefault(option, []).append(name)
    for option in GENERATOR:
        users.setdefault(option, []).append("replaced-tokens")
    for option, objectives in users.items():
        if getattr(options, option) and names and not {*objectives}.intersection(names):
            raise click.UsageError(
                f"{flag_of(option)} is for --objective {', '.join(objectives)} only."
            )


def choose_objectives(backbone_class, options, source=None):
    """Return the options with the objectives for a class of backbone, and the form of their rows.

    A network that may be of either direction, such as Reformer, is of that which its `source`
    states; a new one is causal unless an objective is for the other.
    """
    from keras_lm import models

    is_causal = backbone_class.is_causal
    if backbone_class.in_both_directions:
        is_causal = not options.objectives or "causal-lm" in options.objectives
        if source:
            is_causal = source.arguments(backbone_class).get("causal", True)
    # A cache, unlike a state that is carried along, is empty at the beginning of each window.
    reads_windows = backbone_class.is_causal and backbone_class.make_cache
    reads_streams = options.streams and backbone_class.is_causal
    if not (reads_windows or reads_streams or backbone_class.PRETRAINING_HEADS):
        raise click.UsageError(
            f"{backbone_class.__name__} is not trained on windows in any order: if it carries a "
            "state, add --streams to keras-lm pretrain; otherwise train it from Python, such as by "
            "keras_lm.training.fit_sentences."
        )
    names = options.objectives or default_objectives(backbone_class, is_causal, options)
    options = dataclasses.replace(options, objectives=names)
    does = IN_BOTH_DIRECTIONS
    if is_causal:
        does = WAYS["causal-lm"]
    elif issubclass(backbone_class, models.EncoderDecoderBackbone):
        does = WAYS["span-corruption"]
    if any(WAYS.get(name, IN_BOTH_DIRECTIONS) != does for name in names):
        raise click.UsageError(
            f"{backbone_class.__name__} {does}: --objective {names[0]} is not for it. Leave it "
            "out, or choose another model."
        )
    check_objectives(options)
    if not is_causal:
        form = form_of(names, options.form, backbone_class.TEMPLATE)
        options = dataclasses.replace(options, form=form)
    return options


def default_objectives(backbone_class, is_causal, options):
    """Return the names of what a class of backbone was pretrained with.

    Without what needs pairs of sentences, if the documents have none or the rows another form.
    """
    if is_causal:
        return ("causal-lm",)
    if not backbone_class.PRETRAINING_HEADS:  # by default it is causal
        return ("masked-lm",)
    from keras_lm.objectives import pretraining_objectives

    by_class = {cls: name for name, (cls, _) in OBJECTIVES.items()}
    made = pretraining_objectives(backbone_class)
    names = [by_class[type(objective).__name__] for objective in made]
    return tuple(
        name
        for name in names
        if name not in FORMS or (options.has_sentences and options.form in (None, FORMS[name]))
    )


def vocabulary_for(backbone_class, names):
    """Return what objectives need of a vocabulary, and the option of `keras-lm vocab` for one."""
    needed = next((NEEDED[name] for name in names if name in NEEDED), "in the role of mask")
    if "causal-lm" in names:
        return needed, "byte-pair"
    if "span-corruption" in names:
        return needed, "unigram --special-tokens t5"
    kinds = {
        "BytePairTokenizer": "byte-pair --special-tokens roberta",
        "SentencePieceTokenizer": "unigram --special-tokens bert",
    }
    return needed, kinds.get(backbone_class.tokenizer_class.__name__, "wordpiece")


def form_of(names, form, template):
    """Return the form of rows that objectives read; `form` is the user's, or None.

    Without a separator after its text, a template has rows of one document each.
    """
    default = "doc-sentences" if template.pieces("single")[-1][0] == "$A" else DEFAULT_FORM
    return form or next((FORMS[name] for name in names if name in FORMS), default)


def make_objectives(names, options):
    """Return the objectives of these names, with the options that are given.

    That of replaced tokens still lacks its generator, see `with_generator`; that of distillation
    makes `distilled_from`.
    """
    from keras_lm import objectives

    made = []
    for name, (cls, arguments) in OBJECTIVES.items():
        if name in names:
            given = {a: getattr(options, o) for a, o in arguments.items()}
            given = {a: value for a, value in given.items() if value is not None}
            made.append(getattr(objectives, cls)(**given))
    return made


def with_generator(task, options):
    """Return a task that finds replaced tokens together with a new generator that replaces them."""
    from keras_lm import tasks

    backbone = task.backbone
    if not hasattr(backbone, "make_generator"):
        raise click.UsageError(
            f"{type(backbone).__name__} has no generator: --objective replaced-tokens is for "
            "ELECTRA's discriminators."
        )
    size = {} if options.generator_size is None else {"size": options.generator_size}
    generator = tasks.MaskedLM(
        backbone.make_generator(**size), tokenizer=task.tokenizer, **task.packing
    )
    objective = replaced_by(generator, options)
    return tasks.Pretrainer(
        backbone, [objective], task.heads, tokenizer=task.tokenizer, **task.get_arguments()
    )


def replaced_by(generator, options):
    """Return the objective of the tokens that a generator replaces."""
    from keras_lm import objectives

    rate = {} if options.mask_rate is None else {"rate": options.mask_rate}
    masking = objectives.MaskedLanguageModel(mask_share=0.85, random_share=0.0, **rate)
    return objectives.ReplacedByGenerator(generator, masking=masking)


def distilled_from(teacher, options):
    """Return the objective of a student that learns what a teacher makes of masked texts."""
    from keras_lm import objectives

    (masking,) = make_objectives(("masked-lm",), options)
    return objectives.MaskedLMDistillation(teacher, masking=masking)
