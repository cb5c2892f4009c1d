"""Training a recurrent language model on streams of text, with the state carried along.

Shapes: B batch, S sequence.
"""

import keras
import numpy as np
import tensorflow as tf

from keras_lm.training.pretraining import Plan


def fit_streams(
    task,
    windows,
    batch_size=32,
    epochs=1,
    validation_windows=None,
    callbacks=(),
    verbose="auto",
):
    """Train a task on a corpus read in B streams, each from its start to its end.

    The corpus is cut into B parts of equal length. A step reads the next window of each, from the
    states that the windows before left; gradients end where a window begins (truncated
    back-propagation through time). The windows are held in memory, four bytes a token.

    Args:
        task: compiled `keras_lm.tasks.CausalLM` over a recurrent backbone (`make_states`).
        windows: `tf.data.Dataset` of (S + 1,) int32, in the order of the corpus; see
            `keras_lm.data.token_windows`.
        batch_size: int, B. Windows that do not fill all streams alike are left out at the end.
        epochs: int.
        validation_windows: the same for `val_…` after each epoch, or None.
        callbacks: list of Keras's callbacks.
        verbose: as in Keras.

    Returns:
        dict from metrics to lists of their values, one for each epoch.

    Raises:
        ValueError: if the backbone has no states, or the windows do not fill a batch.

    Example:

        windows = keras_lm.data.token_windows(documents, tokenizer, sequence_length=70)
        keras_lm.training.fit_streams(task, windows, batch_size=64, epochs=3)

    Source: AWD-LSTM, https://arxiv.org/abs/1708.02182, section 5; Mikolov et al. 2010.
    """
    if not hasattr(task.backbone, "make_states"):
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
        lambda epoch: batches,
        batch_size=batch_size,
        steps=len(batches),
        epochs=epochs,
        validation=validation,
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
    callbacks=(),
    verbose="auto",
):
    """Train a bidirectional language model on sentences read in B streams.

    Each epoch shuffles the sentences and cuts them into B parts. A step reads the next sentence of
    each, in either direction from the states that the sentences before left; gradients end where a
    sentence does (truncated back-propagation through time). The sentences are held in memory.

    Args:
        task: compiled `keras_lm.tasks.BidirectionalLM` with a tokenizer.
        sentences: list of strings, or `tf.data.Dataset` of these, such as
            `keras_lm.data.read_documents(files)` of files with a sentence a line.
        batch_size: int, B. Sentences that do not fill all streams alike are left out, other ones in
            each epoch.
        epochs: int.
        seed: int, of the order of the sentences.
        validation_sentences: the same for `val_…` after each epoch, in their own order, or None.
        callbacks: list of Keras's callbacks.
        verbose: as in Keras.

    Returns:
        dict from metrics to lists of their values, one for each epoch.

    Raises:
        ValueError: if there are fewer sentences than streams, or the task has no tokenizer.

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

    def shuffled(epoch):
        order = np.random.default_rng([seed, epoch]).permutation(len(sentences))
        return _sentence_streams(task, sentences[order], batch_size)

    return _fit(
        task,
        _read_sentences,
        shuffled,
        batch_size=batch_size,
        steps=len(sentences) // batch_size,
        epochs=epochs,
        validation=validation,
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


def _sentence_streams(task, sentences, batch_size):
    """Sentences in their order → packed batches: a row goes on in the next one."""
    steps = len(sentences) // batch_size
    rows = sentences[: steps * batch_size].reshape(batch_size, steps).T
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
    _, layers, _, states = task.backbone.read(read, training=training)
    return inputs, labels, task.predicted(layers[-1], labels, training), states


# === The run ===


def _fit(task, read, batches, batch_size, steps, epochs, validation, callbacks, verbose):
    """Train on `batches(epoch)`, and measure on `validation`."""
    callbacks = keras.callbacks.CallbackList(
        list(callbacks),
        add_history=True,
        add_progbar=verbose != 0,
        verbose=1 if verbose == "auto" else verbose,
        epochs=epochs,
        steps=steps,
        model=task,
    )
    task.stop_training = False
    measure = _step(task, read, training=False)
    with Plan(task, 0, epochs * steps):
        callbacks.on_train_begin()
        train, trained = None, None
        for epoch in range(epochs):
            callbacks.on_epoch_begin(epoch)
            names = [variable.path for variable in task.trainable_variables]
            if names != trained:  # a callback may freeze layers
                train, trained = _step(task, read, training=True), names
            logs = _pass(task, train, batches(epoch), batch_size, callbacks)
            if validation is not None:
                found = _pass(task, measure, validation, batch_size)
                logs |= {f"val_{name}": value for name, value in found.items()}
            callbacks.on_epoch_end(epoch, logs)
            if task.stop_training:
                break
        task.optimizer.finalize_variable_values(task.trainable_weights)
        callbacks.on_train_end(logs)
    return task.history.history


def _pass(task, step, batches, batch_size, callbacks=None):
    """Read all streams once; returns the metrics."""
    task.reset_metrics()
    states = task.backbone.make_states(batch_size)
    for i, batch in enumerate(batches):
        if callbacks is not None:
            callbacks.on_train_batch_begin(i)
        states = step(tf.nest.map_structure(tf.convert_to_tensor, batch), states)
        if callbacks is not None:
            callbacks.on_train_batch_end(i, _numbers(task))
    return _numbers(task)


def _numbers(task):
    return {name: float(value) for name, value in task.get_metrics_result().items()}


def _step(task, read, training):
    """Return a function that takes a batch and states, and returns the new states."""

    def losses(batch, states):
        inputs, labels, outputs, states = read(task, batch, states, training)
        loss = task.compute_loss(x=inputs, y=labels, y_pred=outputs, training=training)
        task._loss_tracker.update_state(loss, sample_weight=tf.shape(labels)[0])
        task.compute_metrics(inputs, labels, outputs)
        return loss, states

    @tf.function(autograph=False, reduce_retracing=True)
    def step(batch, states):
        if not training:
            return losses(batch, states)[1]
        variables = task.trainable_weights
        with tf.GradientTape() as tape:
            loss, states = losses(batch, states)
            loss = task.optimizer.scale_loss(loss)
        gradients = tape.gradient(loss, [variable.value for variable in variables])
        task.optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return states

    return step
