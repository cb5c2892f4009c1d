"""Training a recurrent language model on streams of text, with the state carried along.

Shapes: B batch, S sequence.
"""

import keras
import numpy as np
import tensorflow as tf

from keras_lm.training.checkpointing import TrainingCheckpoint
from keras_lm.training.pretraining import Plan


def fit_streams(
    task,
    windows,
    batch_size=32,
    epochs=1,
    validation_windows=None,
    checkpoint=None,
    minutes=5.0,
    callbacks=(),
    verbose="auto",
):
    """Train a task on a corpus read in B streams, each from its start to its end.

    The corpus is cut into B parts of equal length. A step reads the next window of each, from the
    states that the windows before left; gradients end where a window begins (truncated
    back-propagation through time). The windows are held in memory, four bytes a token.

    With a `checkpoint`, a run that was interrupted goes on in the midst of its streams, and comes
    to the same weights as in one go; see `fit_windows`. It trains on one device.

    Args:
        task: compiled `keras_lm.tasks.CausalLM` over a recurrent backbone.
        windows: `tf.data.Dataset` of (S + 1,) int32, in the order of the corpus; see
            `keras_lm.data.token_windows`.
        batch_size: int, B. Windows that do not fill all streams alike are left out at the end.
        epochs: int.
        validation_windows: the same for `val_…` after each epoch, or None.
        checkpoint, minutes: the file to save the state of the run to, the carried states included,
            and to go on from where it is there, and how often to save; see `fit_windows`.
        callbacks: list of Keras's callbacks.
        verbose: as in Keras.

    Returns:
        dict from metrics to lists of their values, one for each epoch (or rest of one) that this
        call trained.

    Raises:
        ValueError: if the backbone has no states, the windows do not fill a batch, or the
            checkpoint is damaged or of another model or other settings.

    Example:

        windows = keras_lm.data.token_windows(documents, tokenizer, sequence_length=70)
        keras_lm.training.fit_streams(task, windows, batch_size=64, epochs=3)

    Source: AWD-LSTM, https://arxiv.org/abs/1708.02182, section 5; Mikolov et al. 2010.
    """
    if task.backbone.state_name != "states":
        raise ValueError(
            f"{type(task.backbone).__name__} has no states to carry along: use fit_windows."
        )
    batches = _streams(windows, batch_size)
    validation = None
    if validation_windows is not None:
        validation = _streams(validation_windows, batch_size)
    return _fit(
        task,
        _read_windows,
        lambda epoch, first: batches[first:],
        settings={"batch_size": batch_size, "epochs": epochs, "steps": len(batches)},
        validation=validation,
        checkpoint=checkpoint,
        minutes=minutes,
        callbacks=callbacks,
        verbose=verbose,
    )


def fit_sentences(
    task,
    sentences,
    batch_size=32,
    epochs=1,
    seed=0,
    validation_sentences=None,
    checkpoint=None,
    minutes=5.0,
    callbacks=(),
    verbose="auto",
):
    """Train a bidirectional language model on sentences read in B streams.

    Each epoch shuffles the sentences and cuts them into B parts. A step reads the next sentence of
    each, in either direction from the states that the sentences before left; gradients end where a
    sentence does (truncated back-propagation through time). The sentences are held in memory.

    With a `checkpoint`, a run that was interrupted goes on in the midst of its streams, and comes
    to the same weights as in one go; see `fit_windows`. It trains on one device.

    Args:
        task: compiled `keras_lm.tasks.BidirectionalLM` with a tokenizer.
        sentences: list of strings, or `tf.data.Dataset` of these, such as
            `keras_lm.data.read_documents(files)` of files with a sentence a line.
        batch_size: int, B. Sentences that do not fill all streams alike are left out, other ones in
            each epoch.
        epochs: int.
        seed: int, of the order of the sentences.
        validation_sentences: the same for `val_…` after each epoch, in their own order, or None.
        checkpoint, minutes: the file to save the state of the run to, the carried states included,
            and to go on from where it is there, and how often to save; see `fit_windows`.
        callbacks: list of Keras's callbacks.
        verbose: as in Keras.

    Returns:
        dict from metrics to lists of their values, one for each epoch (or rest of one) that this
        call trained.

    Raises:
        ValueError: if there are fewer sentences than streams, the task has no tokenizer, or the
            checkpoint is damaged or of another model or other settings.

    Example:

        sentences = keras_lm.data.read_documents("corpus/*.txt")
        keras_lm.training.fit_sentences(task, sentences, batch_size=128, epochs=10)

    Source: ELMo, https://arxiv.org/abs/1802.05365, section 3.4; allenai/bilm-tf, `training.py`,
    whose windows are twenty words rather than a sentence.
    """
    task.require_tokenizer()
    sentences = _strings(sentences, batch_size, "sentences")
    validation = None
    if validation_sentences is not None:
        validation_sentences = _strings(validation_sentences, batch_size, "validation_sentences")
        validation = _sentence_streams(task, validation_sentences, batch_size)

    def shuffled(epoch, first):
        order = np.random.default_rng([seed, epoch]).permutation(len(sentences))
        return _sentence_streams(task, sentences[order], batch_size, first)

    return _fit(
        task,
        _read_sentences,
        shuffled,
        settings={
            "batch_size": batch_size,
            "epochs": epochs,
            "seed": seed,
            "sentences": len(sentences),
            "steps": len(sentences) // batch_size,
        },
        validation=validation,
        checkpoint=checkpoint,
        minutes=minutes,
        callbacks=callbacks,
        verbose=verbose,
    )


def _streams(windows, batch_size):
    """Windows in the order of the corpus → (steps, B, S + 1): a row goes on in the next step."""
    windows = np.stack(list(windows.as_numpy_iterator()) or [np.zeros(1, "int32")])
    steps = len(windows) // batch_size
    if not steps or windows.shape[1] < 2:
        raise ValueError(
            f"windows has {len(windows)}, which do not fill batch_size={batch_size} streams: give "
            "more text, or a lower batch_size or sequence length."
        )
    windows = windows[: steps * batch_size].reshape(batch_size, steps, -1)
    return np.swapaxes(windows, 0, 1)


def _strings(sentences, batch_size, name):
    """A list or a dataset as an array of bytes."""
    if isinstance(sentences, tf.data.Dataset):
        sentences = list(sentences.as_numpy_iterator())
    if len(sentences) < batch_size:
        raise ValueError(
            f"{name} has {len(sentences)}, which do not fill batch_size={batch_size} streams: give "
            "more, or a lower batch_size."
        )
    return np.array(sentences, object)


def _sentence_streams(task, sentences, batch_size, first=0):
    """Sentences in their order → packed batches from the first: a row goes on in the next one."""
    steps = len(sentences) // batch_size
    rows = sentences[: steps * batch_size].reshape(batch_size, steps).T[first:]
    batches = tf.data.Dataset.from_tensor_slices(tf.constant(rows.tolist(), tf.string))
    return batches.map(
        lambda text: task.preprocess({"text": text}), num_parallel_calls=tf.data.AUTOTUNE
    ).prefetch(tf.data.AUTOTUNE)


# === What a step reads: (inputs, labels, outputs, states) ===


def _read_windows(task, batch, states, training):
    inputs = {"token_ids": batch[:, :-1], "padding_mask": tf.ones_like(batch[:, 1:])}
    outputs = task.backbone(inputs | {"states": states}, training=training)
    logits = task.head(outputs, inputs, training=training)
    return inputs, batch[:, 1:], logits, outputs["states"]


def _read_sentences(task, batch, states, training):
    inputs, labels = task.objective.corrupt(batch, training)
    read = {name: batch[name] for name in task.backbone.input_names} | {"states": states}
    computed = task.backbone.compute(read, training=training)
    top = computed["hidden_states_with_boundaries"][-1]
    return inputs, labels, task.predicted(top, labels, training), computed["states"]


# === The run ===


class _States:
    """The states that a pass carries along, in variables, so that a checkpoint can hold them."""

    def __init__(self, task, batch_size):
        self.start = task.backbone.initial_state(batch_size)
        self.variables = [
            keras.Variable(state, dtype=state.dtype, trainable=False)
            for state in tf.nest.flatten(self.start)
        ]

    def read(self):
        values = [variable.value for variable in self.variables]
        return tf.nest.pack_sequence_as(self.start, [tf.convert_to_tensor(v) for v in values])

    def write(self, states):
        for variable, state in zip(self.variables, tf.nest.flatten(states), strict=True):
            variable.assign(state)


def _fit(task, read, batches, settings, validation, checkpoint, minutes, callbacks, verbose):
    """Train on `batches(epoch, first step)`, and measure on `validation`."""
    batch_size, epochs, steps = (settings[name] for name in ("batch_size", "epochs", "steps"))
    states, callbacks, done = _States(task, batch_size), list(callbacks), 0
    if checkpoint is not None:
        settings = settings | {"optimizer": keras.saving.serialize_keras_object(task.optimizer)}
        checkpoint = TrainingCheckpoint(checkpoint, settings, minutes, states.variables)
        done = checkpoint.restore(task)
        callbacks.append(checkpoint)
    callbacks = keras.callbacks.CallbackList(
        callbacks,
        add_history=True,
        add_progbar=verbose != 0,
        verbose=1 if verbose == "auto" else verbose,
        epochs=epochs,
        steps=steps,
        model=task,
    )
    task.stop_training = False
    measured = _States(task, batch_size)
    measure = _step(task, read, measured, training=False)
    with Plan(task, done, epochs * steps):
        callbacks.on_train_begin()
        train, trained, logs = None, None, None
        for epoch in range(done // steps, epochs):
            callbacks.on_epoch_begin(epoch)
            names = [variable.path for variable in task.trainable_variables]
            if names != trained:  # a callback may freeze layers
                train, trained = _step(task, read, states, training=True), names
            first = max(done - epoch * steps, 0)
            if not first:
                states.write(states.start)
            logs = _pass(task, train, batches(epoch, first), callbacks)
            if validation is not None:
                measured.write(measured.start)
                found = _pass(task, measure, validation)
                logs |= {f"val_{name}": value for name, value in found.items()}
            callbacks.on_epoch_end(epoch, logs)
            if task.stop_training:
                break
        task.optimizer.finalize_variable_values(task.trainable_weights)
        callbacks.on_train_end(logs)
    return task.history.history


def _pass(task, step, batches, callbacks=None):
    """Read all streams once; returns the metrics."""
    task.reset_metrics()
    for i, batch in enumerate(batches):
        if callbacks is not None:
            callbacks.on_train_batch_begin(i)
        step(tf.nest.map_structure(tf.convert_to_tensor, batch))
        if callbacks is not None:
            callbacks.on_train_batch_end(i, _numbers(task))
    return _numbers(task)


def _numbers(task):
    return {name: float(value) for name, value in task.get_metrics_result().items()}


def _step(task, read, states, training):
    """Return a function that reads a batch from the states, and leaves the new ones there."""

    def losses(batch):
        inputs, labels, outputs, new = read(task, batch, states.read(), training)
        loss = task.compute_loss(x=inputs, y=labels, y_pred=outputs, training=training)
        task._loss_tracker.update_state(loss, sample_weight=tf.shape(labels)[0])
        task.compute_metrics(inputs, labels, outputs)
        return loss, new

    @tf.function(autograph=False, reduce_retracing=True)
    def step(batch):
        if not training:
            states.write(losses(batch)[1])
            return
        variables = task.trainable_weights
        with tf.GradientTape() as tape:
            loss, new = losses(batch)
            loss = task.optimizer.scale_loss(loss)
        gradients = tape.gradient(loss, [variable.value for variable in variables])
        task.optimizer.apply_gradients(zip(gradients, variables, strict=True))
        states.write(new)

    return step
