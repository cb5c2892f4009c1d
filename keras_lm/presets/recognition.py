"""Which model a checkpoint holds, and which task's head."""

import contextlib

from keras_lm.converters import CheckpointError, Converter
from keras_lm.converters.checkpoint import PRESET_CONFIG
from keras_lm.converters.names import NameTable
from keras_lm.registry import BACKBONES, TASKS

FORMAT_VERSION = 1
# Models whose checkpoints look like those of ours: their `model_type`, by which the names of their
# tensors begin, too → what they are.
RELATED = {
    "bart": "BART, an encoder-decoder with learned positions",
    "big_bird": "BigBird, a BERT with sparse attention",
    "camembert": "CamemBERT, a RoBERTa for French with a SentencePiece vocabulary of its own",
    "convbert": "ConvBERT, a BERT with convolutions beside attention",
    "deberta": "DeBERTa, whose attention keeps contents and relative positions apart",
    "deberta-v2": "DeBERTa's second or third version, with relative positions of its own",
    "funnel": "a Funnel Transformer, which shortens the sequence from block to block",
    "ibert": "I-BERT, a RoBERTa that computes with integers",
    "longformer": "Longformer, a RoBERTa with attention in windows",
    "m2m_100": "M2M-100 or NLLB, an encoder-decoder that normalises before each part of a block",
    "mbart": "mBART, an encoder-decoder that normalises before each part of a block",
    "megatron-bert": "Megatron's BERT, which normalises before each part of a block",
    "mobilebert": "MobileBERT, a BERT with bottlenecks and several feed-forward networks a block",
    "modernbert": "ModernBERT, with rotary positions and gated feed-forward networks",
    "mpnet": "MPNet, a BERT with relative positions",
    "pegasus": "PEGASUS, an encoder-decoder that normalises before each part of a block",
    "roformer": "RoFormer, a BERT with rotary positions",
    "squeezebert": "SqueezeBERT, a BERT of grouped convolutions",
    "umt5": "umT5, a T5 with a table of relative positions in each block",
    "xlm": "XLM, an encoder with an embedding for the language; XLM-R is another model",
    "xlm-roberta-xl": "XLM-R XL, which normalises before each part of a block",
}


class SameNames(NameTable):
    """A preset's tensors have the names of our variables."""

    def sources(self, path):
        return (path,)


def recognise(checkpoint, cls=object, kind=None):
    """Return the class of a checkpoint's backbone, and its `Converter`: the best match.

    Of models that match equally well, those are taken that were pretrained with the wanted head;
    and of a class and its subclass the class, so that its subclass must be asked for.

    Args:
        checkpoint: `keras_lm.converters.Checkpoint`.
        cls: class of backbone, to consider only it and its subclasses if a folder has two models.
        kind: str. The kind of pretraining head that is wanted, see `Backbone.PRETRAINING_HEADS`.

    Raises:
        CheckpointError: if no model matches, or several do.
    """
    is_preset = checkpoint.format == "keras_lm"
    found = _stored(checkpoint) if is_preset else _match(checkpoint, cls, kind)
    found = [(encoder_or_all(backbone, cls), converter) for backbone, converter in found]
    found = [(backbone, converter) for backbone, converter in found if issubclass(backbone, cls)]
    if len(found) != 1:
        names = [backbone.__name__ for backbone, _ in found]
        model_type = checkpoint.config.get("model_type")
        raise CheckpointError(
            f"{checkpoint.source} ({checkpoint.format}, model_type={model_type!r}) "
            + (
                f"holds several models: call from_preset of one of {names}."
                if names
                else "is not a checkpoint that "
                f"{'keras_lm' if cls is object else cls.__name__} can load{_related(checkpoint)}."
            )
        )
    return found[0]


def encoder_or_all(backbone, cls):
    """Return a class of backbone, or that of its encoder alone if `cls` asks for that.

    Args:
        backbone, cls: classes.
    """
    half = backbone.encoder_class
    is_asked_for = half is not None and issubclass(half, cls) and not issubclass(backbone, cls)
    return half if is_asked_for else backbone


def _related(checkpoint):
    """Return what a checkpoint of another model is, for an error; nothing if that is not known."""
    stated = checkpoint.config.get("model_type")
    known = {stated} if stated else {name.split(".")[0] for name in checkpoint.tensors}
    return "".join(f": it is {what}" for name, what in RELATED.items() if name in known)


@contextlib.contextmanager
def reading(checkpoint, what):
    """Turn what a wrong configuration raises, which may be anything, into a CheckpointError."""
    try:
        yield
    except CheckpointError:
        raise
    except KeyError as error:
        raise CheckpointError(
            f"{checkpoint.source}: {what} lacks {error}. Copy or download it again."
        ) from error
    except ValueError as error:  # which says what to do
        raise CheckpointError(f"{checkpoint.source}: {what}: {error}") from error
    except Exception as error:
        raise CheckpointError(
            f"{checkpoint.source}: {what} is wrong, {type(error).__name__}: {error}. Copy or "
            "download it again."
        ) from error


def read_arguments(checkpoint, converter):
    """Return the arguments of a backbone that a published checkpoint's configuration states.

    Args:
        checkpoint, converter: `keras_lm.converters.Checkpoint`, and what `recognise` found for it.

    Raises:
        CheckpointError: if the configuration lacks something, or holds nonsense.
    """
    with reading(checkpoint, "its configuration"):
        return converter.config(checkpoint)


def _stored(checkpoint):
    path = checkpoint.folder / PRESET_CONFIG
    version = checkpoint.config.get("format_version")
    if version != FORMAT_VERSION:
        raise CheckpointError(
            f"{path} has format_version={version}, and this keras_lm reads {FORMAT_VERSION}: "
            f"install the keras_lm that wrote it ({checkpoint.config.get('keras_lm_version')})."
        )
    if "members" in checkpoint.config:
        raise CheckpointError(
            f"{path} is of an ensemble, which has no backbone of its own: load its task, or one of "
            "the presets in it, such as member_0."
        )
    if checkpoint.config.get("backbone") is None:
        raise CheckpointError(f"{path} describes no backbone: save the preset of a model again.")
    config = checkpoint.config["backbone"]
    while "backbone" in config:  # a feature extractor has a backbone of its own
        config = config["backbone"]
    name = config["class"]
    if name not in BACKBONES:
        raise CheckpointError(
            f"{path} names the backbone {name!r}: this keras_lm has {sorted(BACKBONES)}. A class "
            "of your own is known once its module is imported."
        )
    return [(BACKBONES[name], Converter(None, None, SameNames({}, {})))]


def _match(checkpoint, cls, kind):
    """Return the models, subclasses of `cls`, that match best; see `recognise`."""
    found = []
    for backbone in BACKBONES.values():
        # A subclass that inherits the converters of its base must be asked for.
        is_own = backbone is cls or "CONVERTERS" in vars(backbone)
        converter = backbone.CONVERTERS.get(checkpoint.format)
        if is_own and issubclass(backbone, cls) and converter is not None:
            found.append((converter.matches(checkpoint), backbone, converter))
    most = max((signs for signs, *_ in found), default=0)
    best = [match for signs, *match in found if most and signs == most]
    best = [match for match in best if kind in match[0].PRETRAINING_HEADS.values()] or best
    classes = {backbone for backbone, _ in best}
    return [match for match in best if classes.isdisjoint(match[0].__mro__[1:])]


def stated_task(checkpoint):
    """Return the class of the task whose head a checkpoint holds, or None.

    Args:
        checkpoint: `keras_lm.converters.Checkpoint`.
    """
    return next((c for c in TASKS.values() if stated_arguments(checkpoint, c) is not None), None)


def stated_arguments(checkpoint, cls, given=None):
    """Return the arguments of a task that a checkpoint states, or None without such a head.

    Args:
        checkpoint, cls: `keras_lm.converters.Checkpoint`, and class of the task.
        given: dict of the user's arguments, which count more.
    """
    if checkpoint.format == "keras_lm":
        stored = checkpoint.config.get("task")
        return stored["arguments"] if stored and stored["class"] == cls.__name__ else None
    _, converter = recognise(checkpoint)
    with reading(checkpoint, "its description of labels"):
        labels = converter.labels(checkpoint)
    if labels is not None:
        return cls.arguments_from_checkpoint(labels)
    if not checkpoint.has_modules or not hasattr(cls, "arguments_from_modules"):
        return None
    given = given or {}
    limit = read_arguments(checkpoint, converter).get("max_sequence_length")
    with reading(checkpoint, "its description of modules"):
        return cls.arguments_from_modules(checkpoint, given.get("sequence_length") or limit, given)
