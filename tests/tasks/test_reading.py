"""GPT's fine-tuning: its tokens, its transformations of inputs, and the auxiliary loss."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from tiny import assert_equal, hidden_states

import keras_lm
from keras_lm.models import Backbone, GPTBackbone
from keras_lm.tasks import CausalLM, MultipleChoice, TextClassifier, TextRegressor
from keras_lm.tasks.text_classifier import language_model_losses
from keras_lm.tokenizers import GPTTokenizer

TOKENS = ["_start_", "_delimiter_", "_classify_"]


def language_model_loss(logits, inputs):
    total, rows = language_model_losses(logits, inputs)
    return float(total) / max(float(rows), 1.0)


@pytest.fixture(scope="module")
def gpt_tokenizer(goldens):
    return GPTTokenizer.from_files(goldens("tokenizers") / "bpe-gpt1")


@pytest.fixture(scope="module")
def preset(gpt_tokenizer, tmp_path_factory):
    """A folder with a small GPT and its tokenizer, as pretraining leaves them."""
    keras.utils.set_random_seed(2)
    backbone = GPTBackbone(
        gpt_tokenizer.vocabulary_size, 1, 2, 8, 16, max_sequence_length=32, dropout=0.0
    )
    for weight in backbone.trainable_weights:
        weight.assign_add(keras.random.normal(weight.shape, stddev=0.3))
    folder = tmp_path_factory.mktemp("gpt") / "preset"
    CausalLM(backbone, tokenizer=gpt_tokenizer).save_to_preset(folder)
    return folder


@pytest.fixture(scope="module")
def load(preset):
    def load(cls, **arguments):
        keras.utils.set_random_seed(3)
        with pytest.warns(UserWarning, match="the embedding of _start_"):
            task = cls.from_preset(preset, **arguments)
        task.compile(run_eagerly=True)
        return task

    return load


def tokens_of(task, *texts):
    """The pieces of the only row, without padding."""
    names = task.text_names
    packed = task.preprocess({n: tf.constant([t]) for n, t in zip(names, texts)})
    mask = packed["padding_mask"].numpy() == 1
    return [p.decode() for p in task.tokenizer.tokens(packed["token_ids"]).numpy()[mask]]


# === The references ===


@pytest.mark.eager
def test_huggingface_double_heads(goldens):
    folder = goldens("openai-gpt-double-heads")
    arrays = np.load(folder / "expected.npz")
    task = keras_lm.tasks.Task.from_preset(folder)
    assert type(task) is MultipleChoice
    ids, last = arrays["in.input_ids"], arrays["in.mc_token_ids"]
    columns = np.arange(ids.shape[-1])
    # Nothing after the token that the head reads can reach it.
    inputs = {"token_ids": ids, "padding_mask": (columns <= last[:, :, None]).astype("int32")}
    assert_equal(task(inputs), arrays["out.mc_logits"])
    metrics = task.evaluate(inputs, arrays["in.mc_labels"], verbose=0, return_dict=True)
    assert_equal(metrics["loss"], arrays["out.mc_loss"])

    flat = {"token_ids": ids.reshape(-1, ids.shape[-1])}
    logits = task.lm_head(task.backbone(flat), flat)
    assert_equal(np.reshape(logits, arrays["out.logits"].shape), arrays["out.logits"])
    assert_equal(language_model_loss(logits, flat), arrays["out.loss"])
    states = hidden_states(task.backbone, flat)
    for depth, state in enumerate(states):
        expected = arrays[f"out.hidden_states.{depth}"]
        assert_equal(state.reshape(expected.shape), expected)
    assert_equal(task.backbone.attention_probabilities(flat), arrays["out.attentions"])


def test_openai(goldens):
    folder = goldens("tf1-gpt1")
    arrays, head = np.load(folder / "expected.npz"), np.load(folder / "clf.npz")
    plain = Backbone.from_preset(folder)
    special = np.load(folder / "special.npy")
    rows = plain.config["vocabulary_size"]
    backbone = plain.with_vocabulary_size(rows + len(special))
    table = backbone.token_embedding.embeddings
    np.testing.assert_array_equal(table[:rows], plain.token_embedding.embeddings)
    table.assign(np.concatenate([table[:rows], special]))
    task = MultipleChoice(backbone)
    task.head.logits.kernel.assign(head["w"])
    task.head.logits.bias.assign(head["b"])

    ids, mask = arrays["in.X"][..., 0], arrays["in.M"].astype("int32")
    inputs = {"token_ids": ids, "padding_mask": mask}
    logits = task(inputs)
    assert_equal(logits, arrays["out.clf_logits"])
    losses = keras.losses.sparse_categorical_crossentropy(arrays["in.Y"], logits, from_logits=True)
    assert_equal(losses, arrays["out.clf_losses"])
    flat = {"token_ids": ids.reshape(-1, ids.shape[-1])}
    states = hidden_states(backbone, flat)
    assert_equal(states[1:], arrays["out.layers"])
    # That code takes the softmax over positions, too, which follow the tokens in its one table.
    positions = next(w for w in backbone.weights if w.path.startswith("position_embedding"))
    logits = states[-1] @ np.concatenate([table, positions]).T
    flat["padding_mask"] = mask.reshape(flat["token_ids"].shape)
    for row, expected in enumerate(arrays["out.lm_losses"]):
        here = {name: value[row : row + 1] for name, value in flat.items()}
        assert_equal(language_model_loss(logits[row : row + 1], here), expected)
    expected = arrays["out.lm_losses"].mean()
    assert_equal(language_model_loss(logits, flat), expected)


# === Tokens ===


@pytest.mark.eager
def test_tokens_are_added_where_the_head_is_new(load, gpt_tokenizer):
    task = load(TextClassifier, num_classes=2)
    size = gpt_tokenizer.vocabulary_size
    assert task.tokenizer.vocabulary[size:] == TOKENS
    assert task.backbone.config["vocabulary_size"] == size + 3
    assert tokens_of(task, "a film") == ["_start_", "a</w>", *tokens_of(task, "a film")[2:]]
    pieces = tokens_of(task, "a", "a")
    assert pieces == ["_start_", "a</w>", "_delimiter_", "a</w>", "_classify_"]
    typed = tokens_of(task, "_start_ _classify_")
    assert typed.count("_start_") == 1 and typed.count("_classify_") == 1


def test_the_old_rows_stay_as_they_were(load, preset, gpt_tokenizer):
    old = Backbone.from_preset(preset)
    new = load(TextRegressor).backbone
    for before, after in zip(old.trainable_weights, new.trainable_weights):
        np.testing.assert_array_equal(before, after[: before.shape[0]])
    added = new.token_embedding.embeddings[gpt_tokenizer.vocabulary_size :]
    assert added.shape[0] == 3 and np.asarray(added).std() > 0.001


@pytest.mark.slow
@pytest.mark.eager
def test_a_trained_task_keeps_its_tokens(load, tmp_path):
    task = load(TextClassifier, class_names=["bad", "good"])
    texts = ["a good film", "a bad film"]
    task.fit(texts, ["good", "bad"], verbose=0)
    task.save_to_preset(tmp_path / "preset")
    again = keras_lm.tasks.Task.from_preset(tmp_path / "preset")
    assert again.tokenizer.vocabulary == task.tokenizer.vocabulary
    assert again.fine_tuning.lm_loss_weight == 0.5
    expected = task.predict(texts, verbose=0)
    np.testing.assert_allclose(again.predict(texts, verbose=0), expected, atol=1e-6)
    served = tf.saved_model.load(str(task.export(tmp_path / "m"))).signatures["serving_default"]
    answer = task.classify(texts)
    np.testing.assert_allclose(
        served(text=tf.constant(texts))["scores"], answer["scores"], atol=1e-6
    )


def test_without_the_tokens_texts_stand_alone(preset, gpt_tokenizer):
    task = TextClassifier(Backbone.from_preset(preset), tokenizer=gpt_tokenizer, num_classes=2)
    assert tokens_of(task, "a") == ["a</w>"]
    grown = task.with_fine_tuning_tokens()
    assert tokens_of(grown, "a") == ["_start_", "a</w>", "_classify_"]
    assert grown.with_fine_tuning_tokens() is grown


def test_an_embedding_does_not_shrink(preset):
    with pytest.raises(ValueError, match="vocabulary_size=5 is less than the current"):
        Backbone.from_preset(preset).with_vocabulary_size(5)


# === Transformations ===


@pytest.mark.eager
def test_multiple_choice(load):
    task = load(MultipleChoice)
    data = {"text": ["a", "the film"], "choices": [["a good", "bad"], ["film"]]}
    packed = task.preprocess(task.columns(data))
    assert packed["token_ids"].shape[:2] == (2, 2)
    tokens = task.tokenizer.tokens(packed["token_ids"][0, 1]).numpy()
    mask = packed["padding_mask"][0, 1].numpy() == 1
    assert tokens[mask][0] == b"_start_" and tokens[mask][-1] == b"_classify_"
    assert (tokens == b"_delimiter_").sum() == 1
    assert np.isfinite(task.fit(data, [1, 0], verbose=0).history["loss"]).all()
    assert task.choose(data)["scores"][1, 1] == 0


@pytest.mark.slow
@pytest.mark.eager
@pytest.mark.parametrize("cls", [TextClassifier, TextRegressor])
def test_similarity_reads_both_orders(load, cls):
    arguments = {"num_classes": 2} if cls is TextClassifier else {}
    task = load(cls, symmetric=True, **arguments)
    for weight in task.head.trainable_weights:
        weight.assign(keras.random.normal(weight.shape, stddev=3.0))
    first, second = ["a good film", "the"], ["bad", "a film"]
    logits = task.predict((first, second), verbose=0)
    np.testing.assert_allclose(task.predict_on_batch((second, first)), logits, atol=1e-5)
    orders = []
    for pair in ((first, second), (second, first)):
        ids = (task.tokenizer(texts) for texts in pair)
        packed = task.packer.pack(**dict(zip(task.text_names, ids)))
        del packed["segment_ids"]
        orders.append(task.head(task.backbone(packed), packed))
    np.testing.assert_allclose(logits, orders[0] + orders[1], atol=1e-5)
    assert np.abs(orders[0] - orders[1]).max() > 5e-4
    history = task.fit((first, second), [0, 1], verbose=0).history
    assert np.isfinite(history["loss"]).all()
    assert task.get_arguments()["symmetric"] is True
    with pytest.raises(ValueError, match="symmetric=True reads pairs"):
        task.predict(first, verbose=0)


def test_choices_have_no_order(load):
    with pytest.raises(ValueError, match="symmetric=True is for pairs"):
        MultipleChoice(GPTBackbone(9, 1, 1, 4, 4), symmetric=True)


# === The auxiliary loss ===


@pytest.mark.eager
def test_the_language_models_loss_is_added_in_training(load):
    x, y = ["a good film", "the"], [0, 1]
    losses = {}
    for weight in (0.0, 0.5, 2.0):
        task = load(TextClassifier, num_classes=2, lm_loss_weight=weight)
        assert (task.lm_head is None) == (weight == 0)
        losses[weight] = task.evaluate(x, y, verbose=0, return_dict=True)["loss"]
        packed = task.preprocess({"text": tf.constant(x)})
        table = task.backbone.token_embedding.embeddings
        states = task.backbone({n: packed[n] for n in ("token_ids", "padding_mask")})
        logits = keras.ops.log_softmax(states["sequence_output"] @ table.numpy().T)
        rows = []
        for ids, mask, row in zip(packed["token_ids"], packed["padding_mask"], logits.numpy()):
            length = int(mask.numpy().sum())
            rows.append(-row[np.arange(length - 1), ids.numpy()[1:length]].mean())
        task.head.dropout.rate = 0.0
        trained = task.train_on_batch(x, y, return_dict=True)["loss"]
        assert trained == pytest.approx(losses[weight] + weight * np.mean(rows), rel=1e-4)
    assert losses[0.0] == pytest.approx(losses[2.0], rel=1e-5)


def test_rows_of_one_token_have_no_next_one():
    inputs = {"token_ids": np.array([[3, 1, 2], [4, 0, 0]]), "padding_mask": [[1, 1, 1], [1, 0, 0]]}
    logits = np.zeros((2, 3, 5), "float32")
    assert float(language_model_loss(logits, inputs)) == pytest.approx(np.log(5))
    nothing = {"token_ids": np.array([[3]]), "padding_mask": [[1]]}
    assert float(language_model_loss(logits[:1, :1], nothing)) == 0.0


def test_bad_weights(make):
    with pytest.raises(ValueError, match="lm_loss_weight=-1 is negative"):
        make(TextClassifier, num_classes=2, lm_loss_weight=-1)
    with pytest.raises(ValueError, match="no head for kind='causal_lm'"):
        make(TextClassifier, num_classes=2, lm_loss_weight=0.5)
