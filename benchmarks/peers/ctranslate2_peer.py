"""CTranslate2, with random weights in GPT-2's and T5's sizes, set by its own specifications."""

import tempfile

import inputs
import numpy as np
from protocol import serve


def writing(writers, model, batch, length, new_tokens, threads, calls, variant):
    """Greedy writing in the number format that `variant` names, without an early end."""
    import ctranslate2

    with tempfile.TemporaryDirectory() as folder:
        spec = {"gpt2": gpt2, "t5": t5}[model]()
        spec.validate()
        spec.optimize()
        spec.save(folder)
        kind = {"gpt2": ctranslate2.Generator, "t5": ctranslate2.Translator}[model]
        writer = kind(folder, intra_threads=threads, compute_type=variant)
    if model == "gpt2":
        rows = names_of(inputs.prompts(batch, length))

        def run(number):
            answers = writer.generate_batch(
                rows,
                max_length=number,
                min_length=number,
                sampling_topk=1,
                include_prompt_in_result=False,
            )
            return min(len(answer.sequences[0]) for answer in answers)

    else:
        ends = np.ones([batch, 1], "int32")
        rows = names_of(np.concatenate([inputs.sources(batch, length), ends], axis=1))

        def run(number):
            answers = writer.translate_batch(
                rows, beam_size=1, max_decoding_length=number, min_decoding_length=number
            )
            return min(len(answer.hypotheses[0]) for answer in answers)

    return inputs.writing(run, new_tokens, threads, calls)


def names_of(ids):
    """Return tokens for ids."""
    return [[f"w{i}" for i in row] for row in ids.tolist()]


def random(*shape, stddev=0.02):
    """Return normally distributed weights."""
    return stddev * np.random.default_rng(0).standard_normal(shape, "float32")


def fill_linear(spec, inputs, outputs, bias=True):
    """Set the weights of a product."""
    spec.weight = random(outputs, inputs)
    if bias:
        spec.bias = np.zeros([outputs], "float32")


def fill_norm(spec, width, offset=True):
    """Set the weights of a norm."""
    spec.gamma = np.ones([width], "float32")
    if offset:
        spec.beta = np.zeros([width], "float32")


def gpt2():
    """Return the specification of GPT-2's base size."""
    from ctranslate2.specs import common_spec, transformer_spec

    width, size = inputs.HIDDEN_DIM, inputs.GPT2_VOCABULARY_SIZE
    spec = transformer_spec.TransformerDecoderModelSpec.from_config(
        inputs.NUM_LAYERS,
        inputs.NUM_HEADS,
        pre_norm=True,
        activation=common_spec.Activation.GELUTanh,
    )
    decoder = spec.decoder
    decoder.scale_embeddings = False
    table = random(size, width)
    decoder.embeddings.weight = decoder.projection.weight = table
    decoder.position_encodings.encodings = random(1024, width)
    fill_norm(decoder.layer_norm, width)
    for layer in decoder.layer:
        fill_norm(layer.self_attention.layer_norm, width)
        fill_linear(layer.self_attention.linear[0], width, 3 * width)
        fill_linear(layer.self_attention.linear[1], width, width)
        fill_norm(layer.ffn.layer_norm, width)
        fill_linear(layer.ffn.linear_0, width, inputs.INTERMEDIATE_DIM)
        fill_linear(layer.ffn.linear_1, inputs.INTERMEDIATE_DIM, width)
    spec.config.bos_token = spec.config.eos_token = spec.config.unk_token = f"w{size - 1}"
    spec.register_vocabulary([f"w{i}" for i in range(size)])
    return spec


def t5():
    """Return the specification of T5's small size, with an output matrix of its own."""
    from ctranslate2.specs import common_spec, transformer_spec

    width, size, heads = 512, inputs.T5_VOCABULARY_SIZE, 8
    spec = transformer_spec.TransformerSpec.from_config(
        (6, 6),
        heads,
        pre_norm=True,
        activation=common_spec.Activation.RELU,
        relative_attention_bias=True,
        rms_norm=True,
    )
    table = random(size, width)
    for half in (spec.encoder, spec.decoder):
        half.scale_embeddings = False
        embeddings = half.embeddings
        (embeddings[0] if isinstance(embeddings, list) else embeddings).weight = table
        fill_norm(half.layer_norm, width, offset=False)
        buckets = random(heads, 32).T.copy()
        for layer in half.layer:
            attention = layer.self_attention
            fill_attention(attention, width, [3 * width, width])
            attention.relative_attention_bias = buckets
            attention.relative_attention_max_distance = np.dtype("int32").type(128)
            if half is spec.decoder:
                fill_attention(layer.attention, width, [width, 2 * width, width])
            fill_norm(layer.ffn.layer_norm, width, offset=False)
            fill_linear(layer.ffn.linear_0, width, 4 * width, bias=False)
            fill_linear(layer.ffn.linear_1, 4 * width, width, bias=False)
    spec.decoder.projection.weight = random(size + 1, width)[1:]
    config = spec.config
    config.bos_token = config.decoder_start_token = "w0"
    config.eos_token, config.unk_token = "w1", "w2"
    names = [f"w{i}" for i in range(size)]
    spec.register_source_vocabulary(names)
    spec.register_target_vocabulary(names)
    return spec


def fill_attention(spec, width, outputs):
    """Set the weights of T5's attention, whose products have these numbers of outputs."""
    spec.queries_scale = np.dtype("float32").type(1)
    fill_norm(spec.layer_norm, width, offset=False)
    for linear, number in zip(spec.linear, outputs, strict=True):
        fill_linear(linear, width, number, bias=False)


FUNCTIONS = {"writing": writing}

if __name__ == "__main__":
    serve(FUNCTIONS, ["ctranslate2"])
