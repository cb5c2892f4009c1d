"""The classes of a published classifier."""

import dataclasses

from keras_lm.converters.checked_files import CheckpointError
from keras_lm.converters.sentence_transformers import (
    ACTIVATIONS,
    check_cross_encoder,
    cross_encoder_activation,
    cross_encoder_prompt,
)
from keras_lm.utils.user_arguments import warn

# How the name of a Hugging Face class ends → its problem type; None where the configuration says.
ARCHITECTURES = {
    "ForSequenceClassification": None,
    "ForTokenClassification": "token_classification",
    "ForMultipleChoice": "multiple_choice",
    "ForQuestionAnswering": "question_answering",
}
# How the name of a Hugging Face class ends → the names of our tasks with its head.
TASKS_OF = {
    "ForSequenceClassification": ("TextClassifier", "TextRegressor"),
    "ForTokenClassification": ("TokenClassifier",),
    "ForMultipleChoice": ("MultipleChoice",),
    "DoubleHeadsModel": ("MultipleChoice", "CausalLM"),
    "ForQuestionAnswering": ("QuestionAnswerer",),
    "ForQuestionAnsweringSimple": ("QuestionAnswerer",),
    "ForMaskedLM": ("MaskedLM",),
    "ForPreTraining": ("Pretrainer",),
    "LMHeadModel": ("CausalLM",),
    "ForCausalLM": ("CausalLM",),
    "ModelWithLMHead": ("CausalLM",),
    "ForConditionalGeneration": ("Seq2SeqLM",),
    "MTModel": ("Seq2SeqLM",),
}
# The tensor (2, D) of the logits of starts and ends in Hugging Face's and google-research's files.
SPAN_LOGITS = ("qa_outputs.weight", "cls/squad/output_weights")
# An argument of `QuestionAnswerer` → its entry of a configuration, where ends depend on starts.
CONDITIONAL_ENDS = {"num_starts": "start_n_top", "num_ends": "end_n_top"}
ONE_TEXT = ("single_label_classification", "multi_label_classification", "regression")


@dataclasses.dataclass(frozen=True)
class Labels:
    """The classes of a checkpoint's classification head.

    Args:
        num_classes: int.
        class_names: list of str, or None if the checkpoint only numbers them.
        problem_type: one of `ONE_TEXT`, Hugging Face's words; or `"token_classification"`,
            `"multiple_choice"` or `"question_answering"`, whose heads are of another form.
        others: tuple of str, the problem types that it may have instead, since the configuration
            names no head and theirs has the same tensors.
        activation: what sentence-transformers does to the logits, see `cross_encoder_activation`.
        arguments: dict of a task's arguments that the head calls for, or None.
        read_texts: dict of a task's arguments for how a CrossEncoder reads texts.
    """

    num_classes: int
    class_names: list | None = None
    problem_type: str = "single_label_classification"
    activation: str | None = None
    others: tuple = ()
    arguments: dict | None = None
    read_texts: dict = dataclasses.field(default_factory=dict)

    def may_be(self, problem_type):
        """Whether the head is one for a problem type, as far as is known."""
        return problem_type in (self.problem_type, *self.others)

    @property
    def is_of_texts(self):
        """Whether it is a head of `TextClassifier` or `TextRegressor`, which has one output."""
        is_one = self.problem_type != "regression" or self.num_classes == 1
        return self.problem_type in ONE_TEXT and is_one


def _finds_spans(checkpoint):
    return any(name in checkpoint.weights for name in SPAN_LOGITS)


def google_labels(checkpoint):
    """Return the `Labels` of a checkpoint that google-research's code fine-tuned, or None."""
    weights = checkpoint.weights
    if _finds_spans(checkpoint):
        return Labels(2, problem_type="question_answering")
    return Labels(weights.shape("output_weights")[0]) if "output_weights" in weights else None


def keras_hub_labels(checkpoint):
    """Return the `Labels` of a KerasHub preset whose classifier has two layers, None without."""
    name, tensors = "task/layers/dense_1/vars/0", checkpoint.tensors
    return Labels(tensors.shape(name)[1]) if name in tensors else None


def huggingface_labels(checkpoint, *weights):
    """Return the `Labels` of a Hugging Face classifier, or None if there is none.

    `weights` are the names that the tensor (classes, D) of the logits may have. Heads of other
    tasks use the same names, so the architecture decides, if the configuration states it.
    """
    check_cross_encoder(checkpoint)
    config = checkpoint.config
    if _finds_spans(checkpoint):
        return Labels(2, problem_type="question_answering")
    # A bare model (`BertModel`) does not describe a head in the file, either.
    stated = [name for name in config.get("architectures") or [] if "For" in name]
    architectures = stated or ["ForSequenceClassification"]
    problem_types = [
        problem_type
        for ending, problem_type in ARCHITECTURES.items()
        if any(name.endswith(ending) for name in architectures)
    ]
    weight = next((name for name in weights if name in checkpoint.tensors), None)
    if weight is None or not problem_types:
        return None
    num_classes = checkpoint.tensors.shape(weight)[0]
    is_of_choices = problem_types[0] == "multiple_choice"
    class_names = None if is_of_choices else _stated_names(checkpoint, num_classes)
    activation = cross_encoder_activation(checkpoint, num_classes)
    problem_type = problem_types[0] or _problem_of_texts(checkpoint)
    if problem_type is None and num_classes == 1:
        problem_type = "regression"
    elif problem_type is None:
        kind = "multi" if activation == "sigmoid" else "single"
        problem_type = f"{kind}_label_classification"
    others = () if stated else _same_tensors(checkpoint, weight, num_classes)
    prompt = cross_encoder_prompt(checkpoint)
    read_texts = {} if prompt is None else {"prompt": prompt}
    return Labels(num_classes, class_names, problem_type, activation, others, read_texts=read_texts)


def _stated_names(checkpoint, num_classes):
    """Return the names of a head's classes, None for the placeholders of Hugging Face's library."""
    stated = [checkpoint.config.get(entry) or {} for entry in ("id2label", "label2id")]
    names = {int(number): str(name) for number, name in stated[0].items()}
    numbers = {str(name): int(number) for name, number in stated[1].items()}
    names = names or {number: name for name, number in numbers.items()}
    own = {f"LABEL_{number}" for number in range(len(numbers))}
    if not numbers.keys() <= own and any(names.get(n) != name for name, n in numbers.items()):
        warn(
            f"{checkpoint.source}: its configuration's label2id numbers the classes otherwise than "
            "id2label, which is followed. Correct the one that is wrong."
        )
    if all(name == f"LABEL_{number}" for number, name in names.items()):
        return None
    if sorted(names) != list(range(num_classes)):
        raise CheckpointError(
            f"{checkpoint.source}: its configuration names the classes {sorted(names)}, in "
            f"id2label, and its head has {num_classes} outputs. Name 0 to {num_classes - 1}."
        )
    return _told_apart([names[number] for number in range(num_classes)])


def _problem_of_texts(checkpoint):
    problem_type = checkpoint.config.get("problem_type")
    if problem_type not in (None, *ONE_TEXT):
        known = ", ".join(map(repr, ONE_TEXT))
        raise CheckpointError(
            f"{checkpoint.source}: its configuration has problem_type={problem_type!r}; "
            f"supported: {known}."
        )
    return problem_type


def _same_tensors(checkpoint, weight, num_classes):
    """Return the problem types whose heads have the tensors of one for texts."""
    if weight.endswith("out_proj.weight"):  # RoBERTa's and others', with a layer more
        return ()
    # DistilBERT's heads of texts and of choices have a layer more.
    of_words = () if "pre_classifier.weight" in checkpoint.tensors else ("token_classification",)
    return of_words + (("multiple_choice",) if num_classes == 1 else ())


def architecture_of(config, task):
    """Return the class with a task's head that a `config.json`, a dict, names, or None.

    `task` is the name of our class.
    """
    names = map(str, config.get("architectures") or [])
    pairs = ((name, ending) for name in names for ending in TASKS_OF)
    return next((n for n, ending in pairs if n.endswith(ending) and task in TASKS_OF[ending]), None)


def labels_config(labels):
    """Return the entries of a `config.json` from which `huggingface_labels` reads `Labels`."""
    config = {}
    if labels.problem_type in (*ONE_TEXT, "token_classification"):
        numbers = range(labels.num_classes)
        names = labels.class_names or [f"LABEL_{index}" for index in numbers]
        config["id2label"] = {str(index): name for index, name in enumerate(names)}
        config["label2id"] = {name: index for index, name in enumerate(names)}
    for name, key in CONDITIONAL_ENDS.items():
        config |= {key: labels.arguments[name]} if name in (labels.arguments or {}) else {}
    if labels.problem_type in ONE_TEXT:
        config["problem_type"] = labels.problem_type
    if labels.activation is not None:
        names = {ours: theirs for theirs, ours in ACTIVATIONS.items()}
        config["sentence_transformers"] = {"activation_fn": names[labels.activation]}
        if labels.activation == "sigmoid":  # as pipelines of transformers do where none is stated
            del config["problem_type"]
    return config


def _told_apart(names):
    """Return names, with the class's number added to those that occur before."""
    distinct = []
    for index, name in enumerate(names):
        while name in distinct:
            name = f"{name}_{index}"
        distinct.append(name)
    return distinct
