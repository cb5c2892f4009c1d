"""A source: which model and task it holds, their arguments, and the backbone with its weights.

There are three kinds: `Preset`, what `save_to_preset` has written; `PublishedCheckpoint`, a folder
of another library; and `Size`, the name of a size, which has no weights. `open_source` chooses.
"""

import contextlib
import dataclasses
import functools
import inspect
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Self

import keras
import numpy as np

from keras_lm.converters import Converter, open_checkpoint
from keras_lm.converters.checked_files import CheckpointError, read_config
from keras_lm.converters.checkpoint import ASSETS, PRESET_CONFIG, Checkpoint, replaced_weights
from keras_lm.converters.converter import NameTable
from keras_lm.converters.multi_vector_files import PROJECTION, is_authors, read_layers
from keras_lm.converters.published_labels import ARCHITECTURES, TASKS_OF, architecture_of
from keras_lm.converters.sentence_transformers import cross_encoder_limits, read_projections
from keras_lm.presets.argument_ranges import check_claims, nested_dicts
from keras_lm.utils.argument_types import PathLike
from keras_lm.utils.registry import (
    TASKS,
    advice,
    backbone_classes,
    sizes,
    task_classes,
    tokenizer_classes,
    tokenizer_named,
)
from keras_lm.utils.user_arguments import warn

FORMAT_VERSION = 1
# Embeddings are padded to round numbers of rows; a larger gap may mean a vocabulary cut off.
USUAL_UNUSED_ROWS = 128


class SameNames(NameTable):
    """A preset's tensors have the names of our variables."""

    def alternatives(self, path):
        return {None: (path,)}


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

    # The class of the task whose head is stored, or None; and its `Labels`, if it is published.
    task = labels = None
    # How many presets of tasks are in it, if it is an ensemble's.
    members = 0

    def __new__(cls, checkpoint=None):  # which a copy does not pass
        if cls is Source:
            cls = Preset if checkpoint.format == "keras_lm" else PublishedCheckpoint
        return super().__new__(cls)

    def __init__(self, checkpoint: Checkpoint):
        self.checkpoint: Checkpoint = checkpoint

    @classmethod
    def open(cls, source: PathLike | Self) -> Self:
        """Return a folder or an `hf://owner/name` opened; what is opened already as it is.

        Raises:
            FileNotFoundError, CheckpointError: see `keras_lm.converters.open_checkpoint`.
            ValueError: if it is the name of a size, which has no weights; says where they are.
        """
        source = open_source(source)
        if isinstance(source, Size):
            raise ValueError(source.where_weights_are())
        return source

    def __str__(self):
        return self.checkpoint.source

    def require_weights(self) -> None:
        """Raise a ValueError if it has no weights."""

    def recognise(self, cls: type = object, kind: str | None = None) -> tuple[Any, Any]:
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
        models = self._models(cls, kind)
        models = [(encoder_or_all(model, cls), converter) for model, converter in models]
        models = [match for match in models if issubclass(match[0], cls)]
        if len(models) == 1:
            return models[0]
        checkpoint = self.checkpoint
        model_type = checkpoint.config.get("model_type")
        problem = (
            f"holds several models: call from_preset of one of {_names(models)}."
            if models
            else f"is not a checkpoint that {'keras_lm' if cls is object else cls.__name__} can "
            f"load{self._what_it_is()}."
        )
        raise CheckpointError(
            f"{checkpoint.source} ({checkpoint.format}, model_type={model_type!r}) {problem}"
        )

    def _models(self, cls, kind):
        """Return a list of the models that match best, as (class, `Converter`)."""
        raise NotImplementedError

    def _what_it_is(self):
        """Return what a checkpoint is that a class cannot load, after a colon; "" if unknown."""
        ours = _names(self._models(object, None))
        return f": it is one of {' or '.join(ours)}" if ours else ""

    def arguments(self, cls: type = object) -> dict[str, Any]:
        """Return the arguments of the backbone that the configuration states, as a dict.

        Args:
            cls: see `recognise`.

        Raises:
            CheckpointError: if the configuration lacks something, or holds nonsense.
        """
        raise NotImplementedError

    @property
    def usual_task(self) -> type | None:
        """The class of the task that it is ready for: `task`, or what its network alone does."""
        return self.task or task_classes().get(self.recognise()[0].usual_task)

    def task_arguments(
        self, cls: type, given: Mapping[str, Any] | None = None
    ) -> dict[str, Any] | None:
        """Return the arguments of a task whose head is stored, as a dict; None if it is not.

        Args:
            cls: class of the task.
            given: dict of the user's arguments, which count more.
        """
        raise NotImplementedError

    def file_arguments(self, cls: type, given: Mapping[str, Any], backbone: Any) -> dict[str, Any]:
        """Return the arguments of a task that files beside the configuration state, as a dict.

        Args:
            cls, given: see `task_arguments`.
            backbone: its network.
        """
        return {}

    def dense_layers(self) -> Mapping[str, np.ndarray]:
        """Return the tensors of dense layers that have files of their own, by their paths."""
        return {}

    def tokenizer(self, backbone: Any, converter: Any) -> Any:
        """Return the tokenizer, or None if there is no vocabulary.

        Args:
            backbone, converter: the network that has the weights, and the `Converter` of its class.
        """
        raise NotImplementedError

    def check_head(
        self,
        cls: type,
        backbone: keras.Model,
        unused: Collection[str],
        missing: Sequence[str],
    ) -> None:
        """Raise a CheckpointError if there should be a task's head, and the task lacks it.

        Args:
            cls: class of the task. Nothing is wrong if the configuration names no class with its
                kind of head.
            backbone: its network.
            unused: names of tensors that may be the head in another form.
            missing: paths of the head's weights that are not there. A Pretrainer may have new ones.
        """

    def check_new_head(
        self, cls: type, backbone: keras.Model, names: Sequence[str], given: bool
    ) -> None:
        """Raise a CheckpointError if there is a head for a task that is unknown or missing."""

    def make_backbone(self, cls: type, overrides: Mapping[str, Any]) -> tuple[Any, Any]:
        """Return a backbone with random weights, and the `Converter` of its class.

        Args:
            cls: see `recognise`.
            overrides: dict of arguments that count more than the stated ones.

        Raises:
            CheckpointError: if the configuration is wrong, or asks for more than the tensors hold.
            ValueError: if an override is no argument of the class.
        """
        backbone_class, converter = self.recognise(cls)
        refuse_unknown(overrides, {backbone_class.__name__: argument_names(backbone_class)})
        return self._build(backbone_class, overrides), converter

    def _build(self, cls, overrides):
        """Return a backbone of a class that was recognised; see `make_backbone`."""
        raise NotImplementedError

    def load_weights(
        self,
        names: Any,
        model: keras.Model,
        fresh: Collection[str] = (),
        beside: Any = (),
    ) -> None:
        """Copy the tensors into a model, and warn of missing and unused ones.

        Args:
            names: `NameTable` of the model's `Converter`.
            model: a backbone or a task.
            fresh: paths of variables that keep their random values.
            beside: dict of tensors from elsewhere, by the paths of their variables.

        Raises:
            CheckpointError: if weights of the backbone are missing, or tensors of another shape.
        """
        variables = {path: v for path, v in stored_weights(model).items() if path not in fresh}
        OF_PRESETS.names.load({path: variables.pop(path) for path in beside}, beside)
        with reading(self, "its weights"):
            missing, unused = names.load(variables, self.checkpoint.weights)
        network = innermost_backbone(model)
        check_output_matrix(self.checkpoint, names, names.untied(unused), model, network)
        network.origin = (self.checkpoint.source, self.checkpoint.card)
        network.stated_token_ids = self._token_ids(network)
        needed = {v.path for v in network.weights}
        broken = [path for path in missing if path in needed]
        if broken:
            raise CheckpointError(
                f"{self} lacks the weights of {summary_of(broken)}: the file is incomplete, or its "
                "configuration is another model's."
            )
        unused = [name for name in unused if not re.search(network.LEFT_OUT, name)]
        if beside and is_authors(self.checkpoint):
            unused = [name for name in unused if name != PROJECTION]
        if missing:
            self.check_head(type(model), network, unused, missing)
        missing = sorted([*missing, *fresh])
        if missing or unused:
            said = [f"{type(model).__name__}.from_preset({str(self)!r}):"]
            said += [f"new and random are {summary_of(missing)}, to be trained;"] if missing else []
            said += [f"left over in the checkpoint are {summary_of(unused)};"] if unused else []
            warn(" ".join(said).rstrip(";") + ".")

    def _token_ids(self, network):
        """Return the ids of `network.usual_token_ids()` that files state, or None."""
        return None


class Preset(Source):
    """A folder that `save_to_preset` has written."""

    @property
    def members(self):
        return self.checkpoint.config.get("members", 0)

    def _models(self, cls, kind):
        path, config = self.checkpoint.folder / PRESET_CONFIG, self.checkpoint.config
        version = config.get("format_version")
        if version != FORMAT_VERSION:
            raise CheckpointError(
                f"{path} has format_version={version}, and this keras_lm reads {FORMAT_VERSION}: "
                f"install the keras_lm that wrote it ({config.get('keras_lm_version')})."
            )
        if self.members:
            raise CheckpointError(
                f"{path} is of an ensemble, which has no backbone of its own: load its task, or "
                "one of the presets in it, such as member_0."
            )
        if config.get("backbone") is None:
            raise CheckpointError(
                f"{path} describes no backbone: save the preset of a model again."
            )
        name = _innermost(config["backbone"])["class"]
        classes = backbone_classes()
        if name not in classes:
            raise CheckpointError(
                f"{path} names the backbone {name!r}: this keras_lm has {sorted(classes)}. A "
                "class of your own is known once its module is imported."
            )
        return [(classes[name], OF_PRESETS)]

    def arguments(self, cls=object):
        self.recognise(cls)
        return _innermost(self.checkpoint.config["backbone"])["arguments"]

    @functools.cached_property
    def task(self):
        return next(
            (cls for cls in task_classes().values() if self.task_arguments(cls) is not None), None
        )

    def task_arguments(self, cls, given=None):
        stored = self.checkpoint.config.get("task")
        is_this = stored and stored["class"] == cls.__name__
        return cls.completed(stored["arguments"]) if is_this else None

    def tokenizer(self, backbone, converter):
        config = self.checkpoint.config.get("tokenizer")
        return None if config is None else tokenizer_from_config(self.checkpoint.folder, config)

    def _build(self, cls, overrides):
        check_claims(self.checkpoint, self.checkpoint.config)
        check_classes(self.checkpoint, self.checkpoint.config)

        def build(config):
            if "backbone" not in config:
                return cls.from_config(config["arguments"] | overrides)
            # Older presets name the task `FeatureExtractor`, which brings the same backbone.
            return (backbone_classes() | task_classes())[config["class"]](
                build(config["backbone"]), **config["arguments"]
            )

        with reading(self, "its configuration"):
            return build(self.checkpoint.config["backbone"])


class PublishedCheckpoint(Source):
    """A checkpoint in the format of another library."""

    def __init__(self, checkpoint):
        super().__init__(checkpoint)
        self._scores, self._arguments = {}, {}  # by class of backbone

    def _models(self, cls, kind):
        scored = []
        for backbone, converter in self._candidates():
            if issubclass(backbone, cls) and (backbone is cls or "CONVERTERS" in vars(backbone)):
                if backbone not in self._scores:
                    self._scores[backbone] = converter.matches(self.checkpoint)
                scored.append((self._scores[backbone], backbone, converter))
        most = max((score for score, *_ in scored), default=0)
        best = [match for score, *match in scored if most and score == most]
        best = [match for match in best if kind in match[0].PRETRAINING_HEADS.values()] or best
        classes = {backbone for backbone, _ in best}
        return [match for match in best if classes.isdisjoint(match[0].__mro__[1:])]

    def _candidates(self):
        """Return the registered models of the format, as (class, `Converter`).

        If the configuration states a `model_type`, they are those that it names, and those that no
        configuration names. Otherwise tensors decide, and all are candidates.
        """
        model_type = self.checkpoint.config.get("model_type")
        models = [
            (cls, cls.CONVERTERS.get(self.checkpoint.format)) for cls in backbone_classes().values()
        ]
        return [
            (cls, converter)
            for cls, converter in models
            if converter is not None and converter.may_be(model_type)
        ]

    def _what_it_is(self):
        if what := super()._what_it_is() or what_it_is(self.checkpoint):
            return what
        states_none = not self.checkpoint.config.get("model_type")
        if self.checkpoint.format == "huggingface" and states_none:
            return ": add the model_type of the model to its config.json"
        return ""

    def arguments(self, cls=object):
        backbone, converter = self.recognise(cls)
        if backbone not in self._arguments:
            with reading(self, "its configuration"):
                self._arguments[backbone] = converter.config(self.checkpoint)
        return self._arguments[backbone]

    @functools.cached_property
    def labels(self):
        _, converter = self.recognise()
        with reading(self, "its description of labels"):
            return converter.labels(self.checkpoint)

    @functools.cached_property
    def task(self):
        arguments_of = self.task_arguments
        if self.labels is not None:
            # A head that may be another's is first what its problem type says.
            labels = dataclasses.replace(self.labels, others=())

            def arguments_of(cls):
                return cls.arguments_from_checkpoint(labels)

        elif self.checkpoint.has_modules:
            kind = self.checkpoint.sentence_files.kind
            return next(
                (c for c in task_classes().values() if getattr(c, "published_class", None) == kind),
                None,
            )

        return next((cls for cls in task_classes().values() if arguments_of(cls) is not None), None)

    def task_arguments(self, cls, given=None):
        if self.labels is not None:
            return cls.arguments_from_checkpoint(self.labels)
        if not hasattr(cls, "states_modules") or not cls.states_modules(self.checkpoint):
            return None
        given = given or {}
        limit = given.get("sequence_length") or self.arguments().get("max_sequence_length")
        with reading(self, "its description of modules"):
            return cls.arguments_from_modules(self.checkpoint, limit, given)

    def file_arguments(self, cls, given, backbone):
        if self.checkpoint.format != "huggingface":
            return {}
        limit = innermost_backbone(backbone).max_sequence_length
        stated = cls.arguments_from_files(self.checkpoint.folder, given, limit)
        return stated | cross_encoder_limits(self.checkpoint, limit)

    def dense_layers(self):
        checkpoint = self.checkpoint
        if is_authors(checkpoint) or (
            checkpoint.has_modules and checkpoint.sentence_files.kind == "MultiVectorEncoder"
        ):
            return read_layers(checkpoint)
        return read_projections(checkpoint) if checkpoint.has_modules else {}

    def tokenizer(self, backbone, converter):
        folder = self.checkpoint.vocabulary_folder
        cls = backbone.tokenizer_class.class_for(folder)
        arguments = converter.vocabulary if cls is backbone.tokenizer_class else {}
        try:
            tokenizer = cls.from_files(folder, **arguments)
        except FileNotFoundError:
            return None
        rows = backbone.vocabulary_size
        if rows - tokenizer.vocabulary_size >= USUAL_UNUSED_ROWS:
            warn(
                f"{self}: the vocabulary has {tokenizer.vocabulary_size} entries, the embedding "
                f"{rows} rows. Some models are published so; otherwise the "
                "vocabulary is cut off, or another checkpoint's: copy it again."
            )
        return tokenizer

    def check_head(self, cls, backbone, unused, missing):
        named = self.checkpoint.format == "huggingface" and architecture_of(
            self.checkpoint.config, cls.__name__
        )
        unused = [name for name in unused if not re.search(backbone.LEFT_OUT, name)]
        if cls is TASKS["Pretrainer"] and not unused:
            return
        if named and (unused or missing):
            is_of_texts = str(named).endswith("ForSequenceClassification")
            kind = self.checkpoint.config.get("problem_type") if is_of_texts else None
            said = [f"missing are {summary_of(missing)}"] if missing else []
            said += [f"left over are {summary_of(unused)}"] if unused else []
            raise CheckpointError(
                f"{self} is a {named}{f' for {kind}' if kind else ''}, and {cls.__name__} over a "
                f"{type(backbone).__name__} does not find its head there: {'; '.join(said)}. If "
                "the file is damaged, copy or download it again; for a new head, pass "
                "models.Backbone.from_preset(SOURCE) to the task."
            )

    def check_new_head(self, cls, backbone, names, given):
        is_labelled = any(cls.__name__ in TASKS_OF[ending] for ending in ARCHITECTURES)
        is_labelled = is_labelled and architecture_of(self.checkpoint.config, cls.__name__)
        is_read = self.labels is not None and self.labels.is_of_texts  # by the other task of texts
        if self.checkpoint.format == "huggingface" and is_labelled and not is_read:
            _, unused = names.load(stored_weights(backbone), self.checkpoint.weights)
            asks_for_new = given.keys() & {"num_classes", "class_names"}
            self.check_head(cls, backbone, unused, () if asks_for_new else ["its weights"])

    def _build(self, cls, overrides):
        arguments = self.arguments(cls)
        check_claims(self.checkpoint, {"class": cls.__name__, "arguments": arguments})
        with reading(self, "its configuration"):
            return cls.from_config(arguments | overrides)

    def _token_ids(self, network):
        if self.checkpoint.format != "huggingface":
            return None
        folder = self.checkpoint.folder
        files = (self.checkpoint.config, read_config(folder, "generation_config.json"))
        ids = network.usual_token_ids()
        for name in ids:
            for value in [file[name] for file in files if file.get(name) not in (None, [])]:
                ids[name] = value[0] if isinstance(value, list) else value
        return ids


class Size(Source):
    """The name of a size: the arguments of a published network, whose weights lie elsewhere.

    Args:
        name: str.
    """

    def __init__(self, name: str):
        self.name = name

    def __str__(self):
        return self.name

    def require_weights(self):
        raise ValueError(
            f"{self.where_weights_are()} Or pass load_weights=False for random weights."
        )

    def where_weights_are(self) -> str:
        """Return the message of the error that there are no weights."""
        where = where_published(self.name)
        return f"{self.name!r} names a size, and no weights come with the package. {where}"

    def recognise(self, cls=object, kind=None):
        backbone = encoder_or_all(sizes()[self.name], cls)
        if not issubclass(backbone, cls):
            raise ValueError(
                f"{self.name!r} is a size of {backbone.__name__}, not of {cls.__name__}."
            )
        return backbone, None

    def arguments(self, cls=object):
        return sizes()[self.name].SIZES[self.name]

    def task_arguments(self, cls, given=None):
        return {}  # all that there is: any task may have a new head

    def tokenizer(self, backbone, converter):
        return None

    def _build(self, cls, overrides):
        return cls(**(self.arguments() | overrides))


def open_source(source: PathLike | Source) -> Source:
    """Return what a source is: a `Size`, or an opened `Preset` or `PublishedCheckpoint`.

    Args:
        source: a folder, an `hf://owner/name`, the name of a size, or what is opened already.

    Raises:
        FileNotFoundError, CheckpointError: see `keras_lm.converters.open_checkpoint`.
    """
    if isinstance(source, Source):
        return source
    if str(source) in sizes():
        return Size(str(source))
    with naming_sizes(source):
        return Source(open_checkpoint(source))


def load_backbone(
    source: PathLike | Source, cls: type, load_weights: bool = True, **overrides: Any
) -> Any:
    """Return a backbone; what `Backbone.from_preset` calls.

    Args:
        source, load_weights, **overrides: see there.
        cls: the class that the backbone must be an instance of.
    """
    check_load_weights(load_weights, cls)
    source = open_source(source)
    source.recognise(cls)
    if load_weights:
        source.require_weights()
    with replaced_weights(load_weights):
        backbone, converter = source.make_backbone(cls, overrides)
    if load_weights:
        source.load_weights(converter.names, backbone)
    return backbone


def check_load_weights(load_weights, cls):
    """Raise a ValueError if another argument is in the place of `load_weights`."""
    if not isinstance(load_weights, (bool, np.bool_)):
        raise ValueError(
            f"load_weights={repr(load_weights)[:200]} must be True or False: {cls.__name__}."
            "from_preset takes the source and load_weights by place, and all else by name."
        )


def encoder_or_all(backbone, cls):
    """Return a class of backbone, or that of its encoder alone if `cls` asks for that.

    Args:
        backbone, cls: classes.
    """
    half = backbone.encoder_class
    is_asked_for = half is not None and issubclass(half, cls) and not issubclass(backbone, cls)
    return half if is_asked_for else backbone


def where_published(name):
    """Return a sentence on where the weights of a size are."""
    place = sizes()[name].PUBLISHED.get(name)
    if place is None:
        return "Its weights were never published: train your own, as keras-lm pretrain does."
    return f"Its weights are published at {place}: give that, or a folder with a copy of it."


@contextlib.contextmanager
def naming_sizes(source):
    """Name the sizes that a source without a folder is close to."""
    try:
        yield
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{error}{advice(str(source), sizes())}") from None


@contextlib.contextmanager
def reading(source, what):
    """Turn what a wrong configuration raises, which may be anything, into a CheckpointError."""
    try:
        yield
    except CheckpointError:
        raise
    except KeyError as error:
        raise CheckpointError(
            f"{source}: {what} lacks {error}. Copy or download it again."
        ) from error
    except ValueError as error:  # which says what to do
        raise CheckpointError(f"{source}: {what}: {error}") from error
    except Exception as error:
        raise CheckpointError(
            f"{source}: {what} is wrong, {type(error).__name__}: {error}. Copy or "
            "download it again."
        ) from error


def _names(candidates):
    return [backbone.__name__ for backbone, _ in candidates]


def _innermost(config):
    while "backbone" in config:  # a feature extractor has a backbone of its own
        config = config["backbone"]
    return config


def tokenizer_from_config(folder, config, **overrides):
    """Return the tokenizer of a preset's folder, described by `config`."""
    assets = folder / ASSETS
    cls = tokenizer_named(config["class"])
    if cls is None:
        raise CheckpointError(
            f"{folder / PRESET_CONFIG} names the tokenizer {config['class']!r}: this keras_lm has "
            f"{sorted(tokenizer_classes())}."
        )
    try:
        tokenizer = cls.from_assets(assets, config["arguments"] | overrides)
    except FileNotFoundError as error:
        raise CheckpointError(f"{folder} is an incomplete preset: {error}") from error
    except (AttributeError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{folder / PRESET_CONFIG} describes a {config['class']} wrongly, "
            f"{type(error).__name__}: {error}. Save the preset again, or copy it again."
        ) from error
    if tokenizer.vocabulary_size != config.get("vocabulary_size"):
        raise CheckpointError(
            f"{assets} holds a vocabulary of {tokenizer.vocabulary_size} entries, the preset was "
            f"saved with {config.get('vocabulary_size')}: copy the folder again, whole."
        )
    return tokenizer


# === Whether a configuration and the tensors agree ===


def check_classes(checkpoint, config):
    """Raise a CheckpointError if the configuration of a preset names a class that it may not.

    Keras makes what a dict with a `class_name` describes: any class of its own, or a function. Here
    those are backbones in backbones, and dtype policies.
    """
    for part in nested_dicts(config):
        if "class_name" not in part:
            continue
        name, module, registered = (
            part.get(key) for key in ("class_name", "module", "registered_name")
        )
        registered_class = keras.saving.get_registered_object(str(registered))
        # By its name as well: Keras makes some classes by it alone, whatever is registered.
        is_backbone = (
            registered_class in backbone_classes().values() and registered_class.__name__ == name
        )
        is_policy = module == "keras" and name == "DTypePolicy" and registered is None
        if not is_backbone and not is_policy:
            raise CheckpointError(
                f"{checkpoint.source}: its configuration names the class {name!r} of {module!r}, "
                "and only backbones and dtype policies may be named there: do not use it unless "
                "you know who made it."
            )


def check_output_matrix(checkpoint, names, untied, model, network):
    """Raise a CheckpointError if a table of tokens would be another than the checkpoint's.

    Args:
        checkpoint: `keras_lm.converters.Checkpoint`.
        names: `NameTable` of its model.
        untied: list of the tensors, left over, that usually are copies of the token embedding.
        model, network: a task or a backbone, and the network that has the weights.
    """
    kinds = getattr(model, "head_kinds", ())
    reads_it = any(network.HEADS[kind].reads_embedding for kind in kinds)
    untied = sorted(untied, key=lambda name: name.endswith("bias"))
    of_network = [name for name in untied if "embed" in name]
    if of_network or (untied and reads_it):
        name = (of_network or untied)[0]
        originals = " and ".join(names.originals(name))
        remedy = (
            "" if of_network else ": tasks that predict no tokens, such as TextClassifier, load it"
        )
        raise CheckpointError(
            f"{checkpoint.source} has {name}, which differs from {originals}, and "
            f"{type(model).__name__} has one for both{remedy}."
        )
    is_untied = checkpoint.config.get("tie_word_embeddings") is False
    is_untied = is_untied and "tie_embeddings" not in network.config
    has_matrix = names.copies.keys() & names.resolve(checkpoint.weights).keys()
    if reads_it and is_untied and not has_matrix:
        warn(
            f"{checkpoint.source} states tie_word_embeddings=False and has no output matrix: "
            f"{type(model).__name__} takes the token embedding."
        )


# === Models ===


def stored_weights(model):
    """Return the weights of a model by their paths in a preset, without random states."""
    weights = model.weights_by_path
    return {path: v for path, v in weights.items() if "seed_generator" not in path}


def check_unquantized(model: keras.Model) -> None:
    """Raise an error if Keras has quantized a layer: no file of ours keeps the scale of integers.

    Args:
        model: a backbone or a task.

    Raises:
        ValueError: if a layer was changed by `quantize`.
    """
    for layer in model._flatten_layers():
        mode = getattr(layer, "quantization_mode", None)
        if mode is not None:
            raise ValueError(
                f"{type(model).__name__} has layers that quantize({str(mode)!r}) changed, such as "
                f"{layer.path}, and their integers cannot be saved: save it before quantize, and "
                "call that on what is loaded."
            )


def innermost_backbone(model: keras.Model) -> Any:
    """Return the network that has the checkpoint's weights.

    Args:
        model: a task or a backbone; that of a task may be a feature extractor.
    """
    while hasattr(model, "backbone"):
        model = model.backbone
    return model


# === The arguments of `from_preset` ===


# What other libraries call arguments → ours.
OTHER_NAMES = {
    "num_labels": "num_classes",
    "labels": "class_names",
    "id2label": "class_names",
    "max_length": "sequence_length",
    "max_seq_length": "sequence_length",
    "model_max_length": "sequence_length",
    "preprocessor": "tokenizer",
    "torch_dtype": "dtype",
    "max_active_dims": "top_k",
    "document_length": "sequence_length",
}


def argument_names(cls):
    """Return the names of the arguments of a backbone or a task that `from_preset` takes, a set."""
    parameters = inspect.signature(cls.__init__).parameters.values()
    return {
        parameter.name
        for parameter in parameters
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        or parameter.kind is parameter.KEYWORD_ONLY
    } - {"self", "backbone"}


def refuse_unknown(arguments, known):
    """Raise a ValueError if `from_preset` got arguments that none of `known` takes.

    `known` is a dict of what takes arguments → their names.
    """
    names = set().union(*known.values())
    if unknown := sorted(set(arguments) - names):
        near = "".join(
            f" {name} is {OTHER_NAMES[name]} here."
            if OTHER_NAMES.get(name) in names
            else advice(name, sorted(names))
            for name in unknown
        )
        takes = ", ".join(f"{what} takes {sorted(own)}" for what, own in known.items())
        raise ValueError(f"from_preset got the unknown arguments {unknown}.{near} {takes}.")


def summary_of(names: Sequence[str]) -> str:
    """Return the first of several names, and how many more there are."""
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


# === Models that are not here ===


# Models whose checkpoints look like those of ours: their `model_type`, by which the names of their
# tensors begin, too → what they are.
RELATED = {
    "bart": "BART, an encoder-decoder with learned positions",
    "big_bird": "BigBird, a BERT with sparse attention",
    "camembert": "CamemBERT, a RoBERTa for French with a SentencePiece vocabulary of its own",
    "convbert": "ConvBERT, a BERT with convolutions beside attention",
    "deberta": "DeBERTa's first version, with another order of projections",
    "funnel": "a Funnel Transformer, which shortens the sequence from block to block",
    "ibert": "I-BERT, a RoBERTa that computes with integers",
    "longformer": "Longformer, a RoBERTa with attention in windows",
    "m2m_100": "M2M-100 or NLLB, an encoder-decoder that normalises before each part of a block",
    "mbart": "mBART, an encoder-decoder that normalises before each part of a block",
    "megatron-bert": "Megatron's BERT, which normalises before each part of a block",
    "mobilebert": "MobileBERT, a BERT with bottlenecks and several feed-forward networks a block",
    "pegasus": "PEGASUS, an encoder-decoder that normalises before each part of a block",
    "roformer": "RoFormer, a BERT with rotary positions",
    "squeezebert": "SqueezeBERT, a BERT of grouped convolutions",
    "umt5": "umT5, a T5 with a table of relative positions in each block",
    "xlm": "XLM, an encoder with an embedding for the language; XLM-R is another model",
    "xlm-roberta-xl": "XLM-R XL, which normalises before each part of a block",
}


def what_it_is(checkpoint):
    """Return what a checkpoint of another model is, after a colon; "" if that is not known."""
    stated = checkpoint.config.get("model_type")
    known = {stated} if stated else {name.split(".")[0] for name in checkpoint.tensors}
    return "".join(f": it is {what}" for name, what in RELATED.items() if name in known)
