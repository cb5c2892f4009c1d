"""Continuing one prompt in pieces of text, as they are written."""

from keras_lm.generation import decoding
from keras_lm.generation.decoding import cut
from keras_lm.generation.options import OPTIONS
from keras_lm.tensorflow import tf

REPLACED = "\ufffd"  # stands for the first bytes of a character until the others follow


class Stream:
    """Runs `decoding.sample` step by step, as two graphs.

    `model` has the functions that `decoding` needs, and two more, like a `CausalLM`:
    `prompt_ids` returns the ragged tokens of prompts, and `prepare_generation` is like that of
    `decoding`.
    `proposals` is as in `decoding.sample`.
    """

    def __init__(self, model, proposals=None):
        self.model = model
        self.proposals = proposals
        prompt, strings, ids = (tf.TensorSpec([None], t) for t in (tf.string, tf.string, tf.int32))
        options = {name: tf.TensorSpec([None], option.dtype) for name, option in OPTIONS.items()}
        self._start = _traced(self._start, prompt, strings, ids, options)
        begin, state, *_ = self._start.structured_outputs
        self._step = _traced(self._step, begin, state, strings, ids, options)

    def pieces(self, prompt, stop_strings, stop_ids, options):
        """Yield the pieces (str) of the continuation of a prompt; the arguments are arrays.

        `prompt` and each of the `options` are (1,). The last characters are held back as long as
        they may be the beginning of a stop string, or half a character. The generator returns the
        numbers of tokens, a dict.
        """
        ending = tf.constant(stop_strings, tf.string), tf.constant(stop_ids, tf.int32)
        options = {name: tf.constant(value) for name, value in options.items()}
        begin, state, text, read = self._start(tf.constant(prompt, tf.string), *ending, options)

        def grown():
            nonlocal state, text
            while True:
                yield text.numpy()[0].decode("utf-8", "replace"), bool(state.is_done[0])
                state, text = self._step(begin, state, *ending, options)

        yield from growth(grown(), stop_strings)
        number = int(state.end[0] - begin)
        return {"num_tokens": number, "num_prompt_tokens": int(read[0])}

    def _start(self, prompt, stop_strings, stop_ids, options):
        ids = self.model.prompt_ids(prompt)
        *problem, options, ending = self.model.prepare_generation(
            ids, stop_strings, stop_ids, **options
        )
        begin, state, logits = decoding.start(
            *problem, options.max_new_tokens, proposals=self.proposals
        )
        state = _chooser(begin, options, ending)(logits, state)
        return begin, state, _text(begin, state, ending), ids.row_lengths()

    def _step(self, begin, state, stop_strings, stop_ids, options):
        ids = tf.RaggedTensor.from_tensor(state.token_ids)
        *_, options, ending = self.model.prepare_generation(ids, stop_strings, stop_ids, **options)
        advance = decoding.stepper(
            self.model,
            _chooser(begin, options, ending),
            begin + options.max_new_tokens,
            self.proposals,
        )
        state = advance(state)
        return state, _text(begin, state, ending)


def _text(begin, state, ending):
    new = tf.RaggedTensor.from_tensor(state.token_ids[:, begin:], lengths=state.end - begin)
    return cut(ending.detokenize(new), ending.strings)


def _traced(function, *specs):
    return tf.function(function, autograph=False).get_concrete_function(*specs)


def _chooser(begin, options, ending):
    noise = decoding.sampling_noise(options, tf.zeros_like(options.seed))
    return decoding.make_token_chooser(begin, options, ending, noise)


def growth(texts, stop_strings):
    """Yield what is added to a text that grows; `texts` yields it so far, and whether it is done.

    `stop_strings` are bytes.
    """
    stops = [stop.decode("utf-8", "replace") for stop in stop_strings]
    given = ""
    for text, is_done in texts:
        sure = text if is_done else text[: settled(text, stops)]
        # Characters that the next token may change are held back, too.
        if len(sure) > len(given) and sure.startswith(given):
            yield sure[len(given) :]
            given = sure
        if is_done:
            return


def settled(text, stops):
    """Return how many characters of a text later tokens cannot change."""
    end = len(text.rstrip(REPLACED))
    begun = (n for stop in stops for n in range(1, len(stop)) if text[:end].endswith(stop[:n]))
    return end - max(begun, default=0)
