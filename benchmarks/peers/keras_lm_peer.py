"""keras_lm, and what it is built on."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import itertools
import json
import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import inputs
import numpy as np
from protocol import num_cores, serve, timed

import keras_lm  # before TensorFlow, as the README's examples have it: it turns oneDNN on


def forward(batch, length, dtype, calls, variant):
    """The encoder as users call it in a `tf.function`; or exported, with constants for weights."""
    import tensorflow as tf

    names = ("token_ids", "segment_ids", "padding_mask")
    packed = dict(zip(names, map(tf.constant, inputs.packed_batch(batch, length))))
    if variant == "frozen":
        frozen = load_frozen(dtype)
        return timed(lambda: frozen(**packed)["sequence_output"].numpy(), calls)
    backbone = make_backbone(dtype)
    run = tf.function(lambda x: backbone(x, training=False)["sequence_output"], autograph=False)
    return timed(lambda: run(packed).numpy(), calls)


def growth(minilm, points, calls, variant):
    """MiniLM's network at several sizes, (batch, length) each, in one traced function."""
    import tensorflow as tf

    backbone = keras_lm.models.Backbone.from_preset(minilm)
    names = ("token_ids", "segment_ids", "padding_mask")
    run = tf.function(lambda x: backbone(x, training=False)["sequence_output"], autograph=False)
    run = run.get_concrete_function({name: tf.TensorSpec([None, None], "int32") for name in names})

    def call(packed):
        return lambda: run(packed).numpy()

    return inputs.at_points(
        {
            point: call(dict(zip(names, map(tf.constant, inputs.packed_batch(*point)))))
            for point in map(tuple, points)
        },
        calls,
    )


def make_backbone(dtype="float32"):
    """BERT-base with random weights."""
    return keras_lm.models.Backbone.from_preset(
        "bert_base_en_uncased", load_weights=False, dtype=dtype
    )


def load_frozen(dtype):
    """Return the encoder of a SavedModel with constants for weights, as `export(freeze=True)`."""
    import tensorflow as tf

    with tempfile.TemporaryDirectory() as folder:
        # In a process of its own: freezing leaves many copies of the weights behind.
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            pool.submit(save_frozen, dtype, folder).result()
        return tf.saved_model.load(folder).signatures["tokens"]


def save_frozen(dtype, folder):
    """Save the encoder with constants for weights."""
    import tensorflow as tf

    from keras_lm.tasks.signatures import Constants, trace

    backbone = make_backbone(dtype)
    names = ("token_ids", "segment_ids", "padding_mask")
    specs = {name: tf.TensorSpec([None, None], tf.int32, name) for name in names}

    def network(**packed):
        return {"sequence_output": backbone(packed, training=False)["sequence_output"]}

    with Constants(backbone.variables):
        function = trace(network, specs)
    tf.saved_model.save(tf.Module(), folder, signatures={"tokens": function})


def training(batch, length, dtype, calls, variant):
    """A step of the task as it comes compiled."""
    names = ("token_ids", "segment_ids", "padding_mask")
    packed = dict(zip(names, inputs.packed_batch(batch, length)))
    task = keras_lm.tasks.TextClassifier.from_preset(
        "bert_base_en_uncased", load_weights=False, num_classes=2, dtype=dtype, dropout=0.1
    )
    labels = inputs.labels(batch)
    return timed(lambda: task.train_on_batch(packed, labels), calls)


def epochs(news, minilm, model, rank, batch, calls, variant):
    """An epoch of `fit` on raw strings, on one thread."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    texts = inputs.read_texts(news)
    labels = inputs.classes(len(texts))
    if model == "minilm":
        task = keras_lm.tasks.TextClassifier.from_preset(minilm, num_classes=4)
    else:
        tokenizer = keras_lm.tokenizers.Tokenizer.from_preset(minilm)
        task = keras_lm.tasks.TextClassifier(make_backbone(), tokenizer=tokenizer, num_classes=4)
    if rank:
        keras_lm.training.enable_lora(task, rank)
    return inputs.epochs(lambda: task.fit(texts, labels, batch_size=batch, verbose=0))


def pretraining(model, batch, length, dtype, calls, variant):
    """A step of pretraining, with new masks (and samples) in each."""
    from keras_lm.objectives import MaskedLanguageModel, ReplacedByGenerator

    size, shares = {
        "bert": ("bert_base_en_uncased", {}),
        "electra": (
            "electra_small_discriminator_uncased_en",
            {"mask_share": 0.85, "random_share": 0.0},
        ),
    }[model]
    names = ("token_ids", "segment_ids", "padding_mask")
    packed = dict(zip(names, inputs.packed_batch(batch, length)))
    backbone = keras_lm.models.Backbone.from_preset(
        size, load_weights=False, dtype=dtype, dropout=0.1
    )
    objective = MaskedLanguageModel(
        inputs.MASK_ID, inputs.VOCABULARY_SIZE, special_ids=[], rate=inputs.MASKED, **shares
    )
    if model == "electra":
        generator = keras_lm.tasks.MaskedLM(backbone.make_generator(inputs.GENERATOR))
        objective = ReplacedByGenerator(generator, masking=objective)
    task = keras_lm.tasks.Pretrainer(backbone, objectives=[objective])
    return timed(lambda: task.train_on_batch(packed), calls)


def seq2seq(model, batch, length, dtype, calls, variant):
    """A step of an encoder-decoder as it comes compiled, with T5's or Vaswani's sizes."""
    size = {"t5": "t5_small_multi", "transformer": "transformer_base_en_de"}[model]
    task = keras_lm.tasks.Seq2SeqLM.from_preset(size, load_weights=False, dtype=dtype, dropout=0.1)
    (source, mask), (target, target_mask) = inputs.source_and_target(batch, length)
    packed = {"encoder_token_ids": source, "encoder_padding_mask": mask}
    # Moved by one: token 0 begins a target in both models.
    packed |= {"decoder_token_ids": np.roll(target, 1, axis=1), "decoder_padding_mask": target_mask}
    packed["decoder_token_ids"][:, 0] = 0
    labels = np.where(target_mask > 0, target, -100)
    return timed(lambda: task.train_on_batch(packed, labels), calls)


def translation(batch, length, new_tokens, beams, calls, variant):
    """T5 of its small size writes tokens for tokens, greedily or by beam search.

    Its output matrix is one of its own, as in T5 1.1: with random weights, a shared one would write
    what it has just read, the padding token that targets begin with. With others of the random
    weights, a row may end before it has all tokens.
    """
    task, texts = make_t5(length), words_of(inputs.sources(batch, length))

    def run(number):
        results = task.generate(texts, max_new_tokens=number, num_beams=beams, batch_size=batch)
        return min(len(text.split()) for text in results)

    return inputs.generating(run, new_tokens, calls)


def make_t5(length):
    """Return a T5 of its small size with random weights, for words with names of their ids."""
    import keras

    keras.utils.set_random_seed(0)
    words = ["<pad>", "</s>", "<unk>", *(f"w{i}" for i in range(3, inputs.T5_VOCABULARY_SIZE))]
    tokenizer = keras_lm.tokenizers.WordTokenizer(
        words, unknown_token="<unk>", pad_token="<pad>", eos_token="</s>", splitter="whitespace"
    )
    return keras_lm.tasks.Seq2SeqLM.from_preset(
        "t5_small_multi",
        load_weights=False,
        tie_embeddings=False,
        tokenizer=tokenizer,
        sequence_length=length,
    )


def words_of(ids):
    """Return texts whose words are named after ids (B, S)."""
    return [" ".join(f"w{i}" for i in row) for row in ids]


def tokenizer(reviews, minilm, batch, calls, variant):
    """WordPiece batch by batch, in `tf.data` on all cores, and the op that it is built on."""
    import tensorflow as tf

    from keras_lm.tokenizers import Tokenizer

    wordpiece = Tokenizer.from_preset(minilm)
    if variant == "tf_text":
        import tensorflow_text as tf_text

        with open(f"{minilm}/vocab.txt", encoding="utf-8") as file:
            vocabulary = file.read().splitlines()
        wordpiece = tf_text.FastBertTokenizer(
            vocabulary, token_out_type=tf.int32, lower_case_nfd_strip_accents=True
        ).tokenize
    tokenize = tf.function(
        lambda text: wordpiece(text).values, input_signature=[tf.TensorSpec([None], tf.string)]
    )
    batches = tf.constant(inputs.text_batches(reviews, batch))
    texts = tf.data.Dataset.from_tensor_slices(batches).map(
        tokenize, num_parallel_calls=num_cores()
    )

    def run():
        for batch_of_texts in batches:
            tokenize(batch_of_texts)

    def run_in_tf_data():
        for _ in texts:
            pass

    return timed(run_in_tf_data if variant == "tf_data" else run, calls)


def import_(calls, variant):
    """Importing the library, or only TensorFlow."""
    return inputs.importing("import tensorflow" if variant == "tensorflow" else "import keras_lm")


def loading(checkpoint, calls, variant):
    """A task and its tokenizer from a folder; then each weight is read."""
    return inputs.loading(
        checkpoint,
        "import tensorflow as tf\nfrom keras_lm.tasks import TextClassifier as Task\ntf.zeros(1)",
        "task = Task.from_preset(folder)",
        "for weight in task.weights: tf.reduce_max(weight.value)",
    )


def make_task(model, minilm):
    """Return a classifier: MiniLM as published, or BERT-base with random weights."""
    names = {"class_names": ["negative", "positive"]}
    if model == "minilm":
        return keras_lm.tasks.TextClassifier.from_preset(minilm, **names)
    wordpiece = keras_lm.tokenizers.Tokenizer.from_preset(minilm)
    return keras_lm.tasks.TextClassifier(make_backbone(), tokenizer=wordpiece, **names)


def export(short, minilm, scratch, calls, variant):
    """The SavedModel: size, loading, and a first call with strings."""
    from tensorflow_export import measure_export

    task = make_task("base", minilm)
    folder = task.export(f"{scratch}/keras_lm")
    ideal = 4 * task.count_params() + Path(minilm, "vocab.txt").stat().st_size
    texts = inputs.text_batches(short, 1)[0]
    size = inputs.folder_size(folder)
    return measure_export(folder, {"text": texts}, size, ideal)


def latency(short, minilm, model, batch, calls, variant):
    """From strings to labels in the SavedModel, perhaps frozen or in int8, as a client calls it."""
    import tensorflow as tf

    with tempfile.TemporaryDirectory() as folder:
        weights = "int8" if "int8" in variant else "float32"
        task = make_task(model, minilm)
        path = task.export(folder, weights=weights, freeze="frozen" in variant)
        exported = tf.saved_model.load(str(path))
    batches = itertools.cycle(inputs.text_batches(short, batch, limit=64 // batch))

    def answer():
        answers = exported.signatures["serving_default"](text=tf.constant(next(batches)))
        return answers["labels"].numpy().tolist(), answers["scores"].numpy()

    return timed(answer, calls)


def runtimes(shapes, exports, minilm, scratch, calls, variant):
    """From strings to labels at several shapes, by one of the exports in a folder."""
    path = Path(exports) / variant
    texts = json.loads(Path(shapes).read_text(encoding="utf-8"))
    if path.suffix == ".tflite":
        from keras_lm.litert import InterpreterPool  # needs no TensorFlow

        pool = InterpreterPool(path, num_threads=num_cores())

        def serve(rows):
            return pool.run("serving_default", {"text": rows})
    elif path.suffix == ".onnx":
        serve = open_onnx(path)
    else:
        import tensorflow as tf
        import tensorflow_text  # noqa: F401 - registers the tokenizer's operations

        exported = tf.saved_model.load(str(path / "1"))

        def serve(rows):
            answers = exported.signatures["serving_default"](text=tf.constant(rows))
            return {name: answers[name].numpy() for name in ("labels", "scores")}

    def answer(rows):
        def once():
            answers = serve(rows)
            return answers["labels"].tolist(), answers["scores"]

        return once

    points = {tuple(shape.split("×")): answer(rows) for shape, rows in texts.items()}
    return inputs.at_points(points, calls)


def open_onnx(path):
    """Return a callable from texts to labels and scores, by a file that takes bytes."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = num_cores()
    # Its threads would spin until the next call, and take the cores from the other contenders.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(path, options, ["CPUExecutionProvider"])
    names = np.array(["negative", "positive"])

    def serve(texts):
        data = [text.encode() for text in texts]
        ends = np.cumsum([len(each) for each in data], dtype=np.int32)
        text = np.frombuffer(b"".join(data), np.uint8)
        (scores,) = session.run(["scores"], {"text": text, "text_ends": ends})
        return {"labels": names[scores.argmax(-1)], "scores": scores}

    return serve


def corpus(mixed, minilm, batch, length, calls, variant):
    """From strings of mixed lengths to labels."""
    texts = inputs.read_texts(mixed)
    task = keras_lm.tasks.TextClassifier.from_preset(minilm, num_classes=2, sequence_length=length)
    return timed(lambda: task.classify(texts, batch_size=batch)["labels"], calls)


def generate(batch, length, new_tokens, beams, calls, variant):
    """Decoding with a cache, in the dtype that `variant` names, or greedily by the SavedModel."""
    if variant == "exported":
        run = load_generator(batch, length)
        return inputs.generating(run, new_tokens, calls)
    backbone = keras_lm.models.Backbone.from_preset(
        "gpt2_base_en", load_weights=False, dtype=variant or "float32"
    )
    task = keras_lm.tasks.CausalLM(backbone)
    packed = {"token_ids": inputs.prompts(batch, length)}

    def run(number):
        texts = task.generate(packed, max_new_tokens=number, num_beams=beams)
        return min(map(len, texts))

    return inputs.generating(run, new_tokens, calls)


def load_generator(batch, length):
    """Return a SavedModel's `generate`, from a number of new tokens to how many each row got."""
    import tensorflow as tf

    from keras_lm.generation.options import OPTIONS

    with tempfile.TemporaryDirectory() as folder:
        # In a process of its own, so that its memory does not count.
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            path = pool.submit(export_generator, folder).result()
        exported = tf.saved_model.load(path)
    answer = exported.signatures["generate"]
    inputs = {name: tf.constant([o.default], o.dtype) for name, o in OPTIONS.items()}
    inputs["prompt"] = tf.constant([str(row % 10) * length for row in range(batch)])
    inputs["stop"] = tf.constant([""])

    def run(number, exported=exported):  # which keeps the variables alive
        answers = answer(**inputs | {"max_new_tokens": tf.constant([number])})
        return int(tf.reduce_min(answers["num_tokens"]))

    return run


def export_generator(folder):
    """Export a GPT-2 as a SavedModel; return its path."""
    return str(make_gpt2().export(folder))


def make_gpt2():
    """Return a GPT-2 with random weights that takes each digit for a token."""
    from keras_lm.tokenizers import byte_pair_files

    symbols = byte_pair_files.BYTES
    end = "<|endoftext|>"
    number = inputs.GPT2_VOCABULARY_SIZE - len(symbols) - 1
    # From the last byte down, so that there are enough before it is the digits' turn.
    pairs = itertools.product(reversed(symbols.values()), symbols.values())
    merges = list(map(" ".join, itertools.islice(pairs, number)))
    vocabulary = [*symbols.values(), *(merge.replace(" ", "") for merge in merges), end]
    tokenizer = keras_lm.tokenizers.BytePairTokenizer(
        vocabulary, merges, bos_token=end, eos_token=end
    )
    backbone = keras_lm.models.Backbone.from_preset("gpt2_base_en", load_weights=False)
    return keras_lm.tasks.CausalLM(backbone, tokenizer=tokenizer)


def write_writers(folder):
    """Export a GPT-2 and a T5 of its small size as `.tflite`s that write."""
    for name, task in {"gpt2": make_gpt2(), "t5": make_t5(32)}.items():
        for weights in ("float32", "int8"):
            path = f"{folder}/{name}-{weights}.tflite"
            task.export(path, tokenizer="bytes", weights=weights)


def writing(writers, model, batch, length, new_tokens, threads, calls, variant):
    """Greedy writing by the loop in a `.tflite`, with the weights that `variant` names."""
    from keras_lm.litert import InterpreterPool  # needs no TensorFlow

    pool = InterpreterPool(f"{writers}/{model}-{variant}.tflite", num_threads=threads)
    texts = {"prompt": [str(row % 10) * length for row in range(batch)]}
    if model == "t5":
        texts = {"text": words_of(inputs.sources(batch, length))}

    def run(number):
        answers = pool.run("generate", texts | {"max_new_tokens": number})
        return int(answers["num_tokens"].min())

    return inputs.writing(run, new_tokens, threads, calls)


def elmo(elmo, short, batch, calls, variant):
    """ELMo as users call it in a `tf.function`; perhaps it computed the words before."""
    import tensorflow as tf

    sentences = [text.split() for text in inputs.text_batches(short, batch)[0]]
    backbone = keras_lm.models.Backbone.from_preset(elmo)
    tokenizer = keras_lm.tokenizers.CharacterTokenizer()
    ids = tokenizer.tokenize_words(tf.ragged.constant(sentences)).to_tensor()
    if variant == "cached":
        words = sorted({word for sentence in sentences for word in sentence})
        backbone.cache_words(tokenizer.tokenize_words(words))
    read = tf.function(
        lambda ids: backbone.compute({"character_ids": ids})["hidden_states"], autograph=False
    )
    run = timed(lambda: [layer.numpy() for layer in read(ids)], calls)
    return inputs.per_word(run, sentences)


FUNCTIONS = {
    "forward": forward,
    "growth": growth,
    "training": training,
    "epochs": epochs,
    "pretraining": pretraining,
    "seq2seq": seq2seq,
    "translation": translation,
    "tokenizer": tokenizer,
    "import": import_,
    "loading": loading,
    "export": export,
    "latency": latency,
    "runtimes": runtimes,
    "corpus": corpus,
    "generate": generate,
    "writing": writing,
    "elmo": elmo,
}

if __name__ == "__main__":
    serve(FUNCTIONS, ["tensorflow", "tensorflow-text", "keras", "keras-lm"])
