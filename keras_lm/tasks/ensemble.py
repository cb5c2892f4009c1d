"""Several models that answer as one. Shapes: B batch, C classes."""

import contextlib
import dataclasses
from collections.abc import Sequence
from typing import Any, Self

import keras
from keras import ops

from keras_lm import presets
from keras_lm.feeding.feed import Preprocessor
from keras_lm.packers.packer import Packer
from keras_lm.tasks.runtime import check_alike, require_tensorflow
from keras_lm.tasks.signatures import TextSignatures, trace
from keras_lm.tasks.task import Task
from keras_lm.tasks.text_classifier import TextClassifier
from keras_lm.tasks.text_regressor import TextRegressor
from keras_lm.tokenizers.tokenizer import Tokenizer
from keras_lm.utils.argument_types import PathLike, Tensor
from keras_lm.utils.registry import TASKS


@dataclasses.dataclass(frozen=True, eq=False)
class EnsemblePreprocessor(Preprocessor):
    """Packs texts by the preprocessor of each member: inputs `member_0_token_ids`, ….

    `tokenize`, of a call, is not read: each member has its own tokenizer.
    """

    members: list[Preprocessor]

    def __call__(self, columns, tokenize=None):
        return self._packed(columns, [None] * len(self.members))

    def pack_lite(self, columns: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return what calling does, by operations that LiteRT has."""
        return self._packed(columns, [member.tokenize_lite for member in self.members])

    def is_packed(self, x):
        return isinstance(x, dict) and any(name.startswith(_prefix(0)) for name in x)

    def _packed(self, columns, tokenizers):
        columns = self.as_columns(columns)
        return {
            f"{_prefix(number)}{name}": value
            for number, (member, tokenize) in enumerate(zip(self.members, tokenizers, strict=True))
            for name, value in member(columns, tokenize).items()
        }


class Ensemble(Task):
    """Answer with the mean of what several models of one task answer.

    Of classifiers it is the mean of the probabilities, of regressors that of the numbers. Members
    may be any models and have any tokenizers: each reads the same strings by its own. They are
    trained before, each by its own `fit`. An ensemble of classifiers is a `TextClassifier`, one of
    regressors a `TextRegressor`: it evaluates, answers, teaches a `Distiller`, has a preset
    and a `.keras` file, and goes into one artefact with all members.

    Args:
        members: list of two or more trained `TextClassifier` with the same classes, or of
            `TextRegressor`; all with tokenizers.

    Call: `task(inputs)` takes what `preprocess` returns. Of classifiers it returns the logits of
    the mean probabilities (B, C), of regressors the mean (B, 1), float32.

    Raises:
        ValueError: if there are fewer than two members, they are of other tasks or of different
            ones, differ in their classes or in whether they read pairs, one has no tokenizer, or
            one was made under another strategy than this.

    Example:

        seeds = [keras_lm.tasks.TextClassifier.from_preset(f"critic-{i}") for i in range(3)]
        task = keras_lm.tasks.Ensemble(seeds)
        task.evaluate(texts, labels)
        task.export("exported")

    Source: Devlin et al. 2018, https://arxiv.org/abs/1810.04805, table 2; the mean of
    probabilities: Lakshminarayanan et al. 2017, https://arxiv.org/abs/1612.01474, section 2.4.
    """

    preprocessor_class = EnsemblePreprocessor
    # Arguments that members apply, each its own.
    OWN = {"lm_loss_weight": 0.0}

    def __new__(cls, members=(), name=None):
        if cls is Ensemble:
            return super().__new__(_kind_of(members), members, name=name)
        return super().__new__(cls, members, name=name)

    def __init__(self, members: Sequence[Task], name: str | None = None):
        require_tensorflow("An ensemble")
        _check(members)
        arguments = members[0].get_arguments() | self.OWN
        for learned in arguments.keys() & {"class_names", "text_pair"}:  # from data, by some
            known = [getattr(member, learned) for member in members]
            arguments[learned] = next((value for value in known if value is not None), None)
        super().__init__(members[0].backbone, name=name, **arguments)
        self.members = list(members)
        check_alike(self, "members", members)

    @property
    def tokenizer(self) -> Tokenizer | None:
        return self.members[0].tokenizer

    def _set_tokenizer(self, tokenizer):
        """Members have theirs."""

    @property
    def packer(self) -> Packer:
        """That of a member which takes no more than the others: lists of words only if all do."""
        return min(
            (member.packer for member in self.members), key=lambda packer: packer.takes_words
        )

    def _make_packer(self):
        """Members have theirs."""

    def add_head(self, kind: str, **options: Any) -> keras.Layer:
        """Return None, as members have heads."""
        self.head_kinds.append(kind)

    def check_inputs(self, inputs: dict[str, Any]) -> None:
        """Members check theirs."""

    def call(self, inputs: dict[str, Tensor], training: bool | None = None) -> Tensor:
        outputs = []
        for number, member in enumerate(self.members):
            prefix = _prefix(number)
            mine = {k.removeprefix(prefix): v for k, v in inputs.items() if k.startswith(prefix)}
            outputs.append(ops.cast(member(mine, training=training), "float32"))
        return self.mean(ops.stack(outputs))

    def mean(self, outputs: Any) -> Tensor:
        """Return the outputs of the ensemble (B, C) for those of its members (members, B, C)."""
        return ops.mean(outputs, axis=0)

    def preprocessing(self) -> dict[str, Any]:
        own = Task.preprocessing(self)  # a member's prompt is its own
        return own | {"members": [member.preprocessor for member in self.members]}

    def answer_lite(self, columns: dict[str, Tensor]) -> Any:
        packed = self.preprocessor.pack_lite(columns)
        return self.decode(self(packed, training=False), packed)

    def fit(self, *args: Any, **kwargs: Any) -> Any:
        """Raise a ValueError: members learn by themselves, which is what makes them differ."""
        raise ValueError(
            "An ensemble is not trained: call fit of each member, perhaps with other seeds, and "
            "make the Ensemble of them."
        )

    train_on_batch = fit

    def with_backbone(self, *args: Any, **kwargs: Any) -> Any:
        """Raise a ValueError: members have backbones and tokenizers of their own."""
        raise ValueError(
            "An ensemble has no vocabulary of its own: change each member, and make the Ensemble "
            "of those."
        )

    def trimmed(self) -> Self:
        """Return the ensemble: an export holds its members as they are."""
        return self

    # === From and to files ===

    @classmethod
    def arguments_from_checkpoint(cls, labels: Any) -> dict[str, Any] | None:
        return None  # nobody publishes several

    def save_to_preset(
        self, folder: PathLike, overwrite: bool | None = None, allow_nan: bool = False
    ) -> None:
        """Write a preset with a preset of each member in it; see `Task.save_to_preset`."""
        presets.save_ensemble(folder, self, overwrite, allow_nan)

    def published_labels(self) -> Any:
        raise ValueError(
            f"{type(self).__name__} is several networks, and formats of other libraries hold one: "
            "save each of task.members."
        )

    def get_config(self) -> dict[str, Any]:
        weights = [id(weight) for member in self.members for weight in member.weights]
        if len(weights) > len(set(weights)):
            raise ValueError(
                "members share weights, which a .keras file would hold once and load into one of "
                "them: call save_to_preset."
            )
        members = [keras.saving.serialize_keras_object(member) for member in self.members]
        return {"members": members, "name": self.name}

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None
    ) -> Self:
        members = config["members"]
        names = [
            member.get("class_name") if isinstance(member, dict) else member for member in members
        ]
        for name in names:
            if name not in TASKS:  # Keras would make whatever it is
                raise ValueError(
                    f"The configuration of a {cls.__name__} names {str(name)[:80]!r} as a member, "
                    "which is not a task: the file is damaged, or another program's."
                )
        members = [
            keras.saving.deserialize_keras_object(member, custom_objects) for member in members
        ]
        return cls(members, name=config["name"])

    compile_from_config = Task.compile_by  # no state of the optimizer, which has nothing to train

    @property
    def _tokenizer_config(self):
        return self.members[0]._tokenizer_config

    def save_assets(self, folder: PathLike) -> None:
        """Keras calls each member."""

    load_assets = save_assets

    # === Exports ===

    @property
    def signatures(self) -> "EnsembleSignatures":
        return EnsembleSignatures(self)

    def require_packed_answers(self):
        raise ValueError(
            "each member of an ensemble has inputs of its own: export them one by one, or all as a "
            "SavedModel."
        )

    def single_output(self) -> Any:
        return None  # as each member has a tokenizer of its own

    @property
    def lookups(self) -> list[Any]:
        return [lookup for member in self.members for lookup in member.lookups]

    @contextlib.contextmanager
    def padded(self, padding):
        with contextlib.ExitStack() as stack:
            for member in self.members:
                stack.enter_context(member.padded(padding))
            yield


@keras.saving.register_keras_serializable("keras_lm")
class ClassifierEnsemble(Ensemble, TextClassifier):
    """The mean of the probabilities of several `TextClassifier`; see `Ensemble`."""

    def mean(self, outputs):
        if self.multi_label:
            yes, no = (ops.mean(ops.sigmoid(x), axis=0) for x in (outputs, -outputs))
            return _log(yes) - _log(no)
        return _log(ops.mean(ops.softmax(outputs), axis=0))


@keras.saving.register_keras_serializable("keras_lm")
class RegressorEnsemble(Ensemble, TextRegressor):
    """The mean of the numbers of several `TextRegressor`; see `Ensemble`."""

    OWN = Ensemble.OWN | {"activation": None}


class EnsembleSignatures(TextSignatures):
    """Those of `TextSignatures` about texts: members have pieces and inputs of their own."""

    offered = {}

    def functions(self):
        texts = self.texts()
        others = {n: s for n, s in self.task.other_signatures().items() if s != texts}
        answer = trace(self.answer(), texts)
        words = {name: trace(self.answer(), specs) for name, specs in others.items()}
        return {"serving_default": answer} | self.of_examples(answer) | words

    def frozen_functions(self, weights="float32"):
        answer = self.frozen_answer(weights)
        return {"serving_default": answer} | self.of_examples(answer)

    def attention(self):
        raise ValueError("attention=True: an ensemble has several models; export one of them.")

    def requests(self, batch_sizes):
        requests = super().requests(batch_sizes)
        return [request for request in requests if request[0] != "tokenize"]

    def require_lite(self):
        for member in self.task.members:
            member.signatures.require_lite()


def _prefix(number):
    return f"member_{number}_"


def _log(probabilities):
    return ops.log(ops.maximum(probabilities, 1e-37))


def _kind_of(members):
    for kind, ensemble in (
        (TextClassifier, ClassifierEnsemble),
        (TextRegressor, RegressorEnsemble),
    ):
        if members and all(isinstance(member, kind) for member in members):
            return ensemble
    given = ", ".join(dict.fromkeys(type(member).__name__ for member in members)) or "none"
    raise ValueError(
        f"members are {given}: pass a list of TextClassifier, or a list of TextRegressor."
    )


def _check(members):
    if len(members) < 2:
        raise ValueError(f"members has {len(members)}: pass two or more.")
    for name in ("num_classes", "class_names", "multi_label", "text_pair"):
        known = [getattr(member, name, None) for member in members]
        values = [value for value in known if value is not None]
        if any(value != values[0] for value in values):
            raise ValueError(f"members differ in {name}, {known}: pass some that were made alike.")
    for number, member in enumerate(members):
        # Of a .keras file, the vocabularies follow.
        if member.tokenizer is None and member._tokenizer_config is None:
            raise ValueError(f"members[{number}] has no tokenizer: all read raw strings.")
