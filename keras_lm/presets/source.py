"""What a source holds: which model, which task, and their arguments."""

import contextlib
import functools

from keras_lm.converters import CheckpointError, Converter, open_checkpoint
from keras_lm.converters.checkpoint import PRESET_CONFIG
from keras_lm.converters.names import NameTable
from keras_lm.registry import BACKBONES, TASKS, advice, sizes

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


OF_PRESETS = Converter(None, None, SameNames({}, {}))


class Source:
    """A preset or a published checkpoint, opened: what is in it is found when asked for, once.

    Args:
        checkpoint: `keras_lm.converters.Checkpoint`.

    Example:

        source = keras_lm.presets.Source.open("hf://google-bert/bert-base-uncased")
        source.recognise()[0]  # BertBackbone
        source.arguments()["num_layers"]  # 12
        backbone = keras_lm.models.Backbone.from_preset(source)
    """

    def __init__(self, checkpoint):
        self.checkpoint = checkpoint
        self._is_preset = checkpoint.format == "keras_lm"
        self._matches, self._arguments = {}, {}  # by class of backbone

    @classmethod
    def open(cls, source):
        """Return a folder or an `hf://owner/name` opened; what is opened already as it is.

        Raises:
            FileNotFoundError, CheckpointError: see `keras_lm.converters.open_checkpoint`.
        """
        if isinstance(source, cls):
            return source
        with naming_sizes(source):
            return cls(open_checkpoint(source))

    def __str__(self):
        return self.checkpoint.source

    def recognise(self, cls=object, kind=None):
        """Return the class of the backbone, and its `Converter`: the best match.

        Of models that match equally well, those are taken that were pretrained with the wanted
        head; and of a class and its subclass the class, so that its subclass must be asked for.

        Args:
            cls: class of backbone, to consider only it and its subclasses if a folder has two
                models.
            kind: str. The kind of pretraining head that is wanted, see
                `Backbone.PRETRAINING_HEADS`.

        Raises:
            CheckpointError: if no model matches, or several do.
        """
        checkpoint = self.checkpoint
        found = [_stored(checkpoint)] if self._is_preset else self._best(cls, kind)
        found = [(encoder_or_all(backbone, cls), converter) for backbone, converter in found]
        found = [
            (backbone, converter) for backbone, converter in found if issubclass(backbone, cls)
        ]
        if len(found) == 1:
            return found[0]
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

    def _best(self, cls, kind):
        """Return the models, subclasses of `cls`, that match best; see `recognise`."""
        found = []
        for backbone in BACKBONES.values():
            # A subclass that inherits the converters of its base must be asked for.
            is_own = backbone is cls or "CONVERTERS" in vars(backbone)
            converter = backbone.CONVERTERS.get(self.checkpoint.format)
            if is_own and issubclass(backbone, cls) and converter is not None:
                if backbone not in self._matches:
                    self._matches[backbone] = converter.matches(self.checkpoint)
                found.append((self._matches[backbone], backbone, converter))
        most = max((signs for signs, *_ in found), default=0)
        best = [match for signs, *match in found if most and signs == most]
        best = [match for match in best if kind in match[0].PRETRAINING_HEADS.values()] or best
        classes = {backbone for backbone, _ in best}
        return [match for match in best if classes.isdisjoint(match[0].__mro__[1:])]

    def arguments(self, cls=object):
        """Return the arguments of the backbone that the configuration states, as a dict.

        Args:
            cls: see `recognise`.

        Raises:
            CheckpointError: if the configuration lacks something, or holds nonsense.
        """
        backbone, converter = self.recognise(cls)
        if self._is_preset:
            return _innermost(self.checkpoint.config["backbone"])["arguments"]
        if backbone not in self._arguments:
            with reading(self.checkpoint, "its configuration"):
                self._arguments[backbone] = converter.config(self.checkpoint)
        return self._arguments[backbone]

    @functools.cached_property
    def task(self):
        """The class of the task whose head is stored, or None."""
        return next((cls for cls in TASKS.values() if self.task_arguments(cls) is not None), None)

    def task_arguments(self, cls, given=None):
        """Return the arguments of a task whose head is stored, as a dict; None if it is not.

        Args:
            cls: class of the task.
            given: dict of the user's arguments, which count more.
        """
        if self._is_preset:
            stored = self.checkpoint.config.get("task")
            return stored["arguments"] if stored and stored["class"] == cls.__name__ else None
        if self._labels is not None:
            return cls.arguments_from_checkpoint(self._labels)
        if not self.checkpoint.has_modules or not hasattr(cls, "arguments_from_modules"):
            return None
        given = given or {}
        limit = given.get("sequence_length") or self.arguments().get("max_sequence_length")
        with reading(self.checkpoint, "its description of modules"):
            return cls.arguments_from_modules(self.checkpoint, limit, given)

    @functools.cached_property
    def _labels(self):
        _, converter = self.recognise()
        with reading(self.checkpoint, "its description of labels"):
            return converter.labels(self.checkpoint)


def recognise(checkpoint, cls=object, kind=None):
    """Return the class of a checkpoint's backbone, and its `Converter`; see `Source.recognise`.

    Args:
        checkpoint: `keras_lm.converters.Checkpoint`.
        cls, kind: see there.
    """
    return Source(checkpoint).recognise(cls, kind)


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


def is_size(source):
    """Whether a source is the name of a size."""
    return not isinstance(source, Source) and str(source) in sizes()


def where_published(name):
    """Return a sentence on where the weights of a size are."""
    place = sizes()[name].PUBLISHED.get(name)
    if place is None:
        return "Its weights were never published."
    return f"Its weights are published at {place}: pass that, or a folder with a copy of it."


@contextlib.contextmanager
def naming_sizes(source):
    """Name the sizes that a source without a folder is close to."""
    try:
        yield
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{error}{advice(str(source), sizes())}") from None


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
    name = _innermost(checkpoint.config["backbone"])["class"]
    if name not in BACKBONES:
        raise CheckpointError(
            f"{path} names the backbone {name!r}: this keras_lm has {sorted(BACKBONES)}. A class "
            "of your own is known once its module is imported."
        )
    return BACKBONES[name], OF_PRESETS


def _innermost(config):
    while "backbone" in config:  # a feature extractor has a backbone of its own
        config = config["backbone"]
    return config
