"""PyTorch with Hugging Face's transformers and tokenizers."""

import itertools
import math
import os
import tempfile

import inputs
import numpy as np
from protocol import num_cores, serve, timed


def make_config(**options):
    """BERT-base, as transformers names it."""
    from transformers import BertConfig

    return BertConfig(
        vocab_size=inputs.VOCABULARY_SIZE,
        num_hidden_layers=inputs.NUM_LAYERS,
        num_attention_heads=inputs.NUM_HEADS,
        hidden_size=inputs.HIDDEN_DIM,
        intermediate_size=inputs.INTERMEDIATE_DIM,
        **options,
    )


def packed_inputs(batch, length):
    """The packed batch by transformers' names, as int64, which it expects."""
    import torch

    names = ("input_ids", "token_type_ids", "attention_mask")
    arrays = inputs.packed_batch(batch, length)
    return {name: torch.from_numpy(array).long() for name, array in zip(names, arrays)}


def use_all_cores():
    """PyTorch itself would leave out the second thread of a core."""
    import torch

    torch.set_num_threads(num_cores())


def forward(batch, length, dtype, calls, variant):
    """The encoder in inference mode with PyTorch's own attention, perhaps compiled."""
    import torch
    from transformers import BertModel

    use_all_cores()
    model = BertModel(make_config()).eval().to(getattr(torch, dtype))
    if variant == "compiled":
        model = torch.compile(model)
    packed = packed_inputs(batch, length)

    def run():
        with torch.inference_mode():
            model(**packed).last_hidden_state.float().numpy()

    return timed(run, calls)


def growth(minilm, points, calls, variant):
    """MiniLM's network at several sizes, (batch, length) each."""
    import torch
    from transformers import BertModel

    use_all_cores()
    model = BertModel.from_pretrained(minilm).eval()

    def call(packed):
        def run():
            with torch.inference_mode():
                model(**packed).last_hidden_state.numpy()

        return run

    points = {point: call(packed_inputs(*point)) for point in map(tuple, points)}
    return inputs.at_points(points, calls)


def training(batch, length, dtype, calls, variant):
    """Forward, backward, clipping to norm 1 and PyTorch's fused AdamW."""
    import torch
    from transformers import BertForSequenceClassification

    model = BertForSequenceClassification(make_config(num_labels=2))
    packed = packed_inputs(batch, length)
    labels = torch.from_numpy(inputs.labels(batch)).long()
    network = torch.compile(model) if variant == "compiled" else model
    return timed(make_step(model, lambda: network(**packed, labels=labels).loss, dtype), calls)


def make_step(model, loss, dtype):
    """Return a step of optimisation of a model, given a callable that computes its loss."""
    import torch

    use_all_cores()
    model.train()
    decayed = [p for name, p in model.named_parameters() if p.ndim > 1]
    others = [p for name, p in model.named_parameters() if p.ndim == 1]
    optimizer = torch.optim.AdamW(
        [{"params": decayed}, {"params": others, "weight_decay": 0.0}],
        lr=5e-5,
        eps=1e-6,
        weight_decay=0.01,
        fused=True,
    )

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "mixed_bfloat16"):
            value = loss()
        value.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return value.item()

    return step


def epochs(news, minilm, model, rank, batch, calls, variant):
    """An epoch of `Trainer` from strings, on one thread; `variant` is how it orders the texts."""
    import torch
    from transformers import BertForSequenceClassification, BertTokenizerFast

    torch.set_num_threads(1)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    encode = BertTokenizerFast.from_pretrained(minilm)
    if model == "minilm":
        network = BertForSequenceClassification.from_pretrained(minilm, num_labels=4)
    else:
        network = BertForSequenceClassification(make_config(num_labels=4))
    if rank:
        network = with_lora(network, rank)
    texts = inputs.read_texts(news)
    labels = inputs.classes(len(texts))
    return inputs.epochs(lambda: train_by_trainer(network, encode, texts, labels, batch, variant))


def with_lora(network, rank):
    """Return a classifier with peft's LoRA in the projections to queries, keys and values."""
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(
        task_type="SEQ_CLS",
        r=rank,
        lora_alpha=rank,
        lora_dropout=0.0,
        target_modules=["query", "key", "value"],
    )
    return get_peft_model(network, config)


def train_by_trainer(network, encode, texts, labels, batch, order):
    """Tokenize texts, and train for an epoch with AdamW, as `Trainer` does by default."""
    from transformers import DataCollatorWithPadding, Trainer, TrainingArguments

    ids = encode(texts, truncation=True)["input_ids"]
    rows = [{"input_ids": row, "labels": label} for row, label in zip(ids, labels)]
    arguments = TrainingArguments(
        tempfile.gettempdir(),  # where nothing is saved
        num_train_epochs=1,
        per_device_train_batch_size=batch,
        weight_decay=0.01,
        train_sampling_strategy=order,
        use_cpu=True,
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    collate = DataCollatorWithPadding(encode)
    Trainer(network, arguments, train_dataset=rows, data_collator=collate).train()


def pretraining(model, batch, length, dtype, calls, variant):
    """A step of pretraining, with new masks (and samples) in each; logits at masks only."""
    packed = packed_inputs(batch, length)
    network, loss = {"bert": masked_lm, "electra": electra}[model](packed)
    return timed(make_step(network, loss, dtype), calls)


def masked_lm(packed):
    """Return BERT-base, and a callable that returns its loss with new masks."""
    from torch.nn.functional import cross_entropy
    from transformers import BertForMaskedLM

    model = BertForMaskedLM(make_config())

    def loss():
        masked, positions, labels = mask(packed, 0.8, 0.1)
        states = at(model.bert(**masked).last_hidden_state, positions)
        return cross_entropy(model.cls(states).flatten(0, 1), labels.flatten())

    return model, loss


def electra(packed):
    """Return both networks of ELECTRA-small, and a callable that returns their loss."""
    import torch
    from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy
    from transformers import ElectraConfig, ElectraForMaskedLM, ElectraForPreTraining

    def config(share):
        return ElectraConfig(
            vocab_size=inputs.VOCABULARY_SIZE,
            embedding_size=128,
            hidden_size=int(256 * share),
            num_hidden_layers=12,
            num_attention_heads=int(4 * share),
            intermediate_size=int(1024 * share),
        )

    discriminator = ElectraForPreTraining(config(1))
    generator = ElectraForMaskedLM(config(inputs.GENERATOR))
    generator.electra.embeddings = discriminator.electra.embeddings
    generator.generator_lm_head.weight = discriminator.electra.embeddings.word_embeddings.weight
    model = torch.nn.ModuleDict({"discriminator": discriminator, "generator": generator})
    real = packed["attention_mask"] > 0

    def loss():
        masked, positions, labels = mask(packed, 0.85, 0.0)
        states = at(generator.electra(**masked).last_hidden_state, positions)
        logits = generator.generator_lm_head(generator.generator_predictions(states))
        written = cross_entropy(logits.flatten(0, 1), labels.flatten())
        with torch.no_grad():
            noise = -torch.log(-torch.log(torch.rand(logits.shape)))
            samples = (logits.float() + noise).argmax(dim=-1)
        ids = packed["input_ids"]
        samples = torch.where(labels >= 0, samples, ids.gather(1, positions))
        filled = ids.scatter(1, positions, samples)
        results = discriminator(**packed | {"input_ids": filled}).logits
        replaced = (filled != ids).float()
        return written + 50 * binary_cross_entropy_with_logits(results[real], replaced[real])

    return model, loss


def seq2seq(model, batch, length, dtype, calls, variant):
    """A step of an encoder-decoder, with T5's or Vaswani's sizes."""
    import torch

    network = {"t5": t5_small, "transformer": transformer_base}[model]()
    (source, mask), (target, target_mask) = inputs.source_and_target(batch, length)
    packed = {"input_ids": source, "attention_mask": mask}
    packed |= {"labels": np.where(target_mask > 0, target, -100)}
    packed = {name: torch.from_numpy(array).long() for name, array in packed.items()}
    return timed(make_step(network, lambda: network(**packed).loss, dtype), calls)


def t5_small(**options):
    """Return T5 of its small size, with random weights."""
    from transformers import T5Config, T5ForConditionalGeneration

    options |= {"vocab_size": inputs.T5_VOCABULARY_SIZE, "decoder_start_token_id": 0}
    return T5ForConditionalGeneration(T5Config(**options))


def transformer_base():
    """Return Vaswani's base size: Marian is it, but for a bias of the logits."""
    from transformers import MarianConfig, MarianMTModel

    sizes = {"encoder_layers": 6, "encoder_attention_heads": 8, "encoder_ffn_dim": 2048}
    sizes |= {name.replace("encoder", "decoder"): size for name, size in sizes.items()}
    return MarianMTModel(
        MarianConfig(
            vocab_size=inputs.TRANSFORMER_VOCABULARY_SIZE,
            d_model=512,
            max_position_embeddings=512,
            activation_function="relu",
            scale_embedding=True,
            dropout=0.1,
            attention_dropout=0.1,
            pad_token_id=0,
            eos_token_id=1,
            decoder_start_token_id=0,
            **sizes,
        )
    )


def translation(batch, length, new_tokens, beams, calls, variant):
    """T5 of its small size by transformers' `generate`, or by CTranslate2."""
    import torch

    use_all_cores()
    ids = np.pad(inputs.sources(batch, length), ((0, 0), (0, 1)), constant_values=1)
    model = t5_small(tie_word_embeddings=False).eval()
    if variant == "ctranslate2":
        return inputs.generating(ctranslate2_of(model, ids, beams), new_tokens, calls)
    ids = torch.from_numpy(ids).long()

    def run(number):
        numbers = {"max_new_tokens": number, "min_new_tokens": number}
        with torch.inference_mode():
            texts = model.generate(
                ids, attention_mask=ids.ne(0).long(), num_beams=beams, do_sample=False, **numbers
            )
        return texts.shape[1] - 1

    return inputs.generating(run, new_tokens, calls)


def ctranslate2_of(model, ids, beams):
    """Return a callable from a number of tokens to how many CTranslate2 writes, in float32."""
    import ctranslate2

    names = ["<pad>", "</s>", "<unk>", *(f"w{i}" for i in range(3, inputs.T5_VOCABULARY_SIZE))]

    class Converter(ctranslate2.converters.TransformersConverter):
        """Takes the model and names for its tokens instead of files."""

        def load_model(self, model_class, path, **arguments):
            return model

        def load_tokenizer(self, tokenizer_class, path, **arguments):
            return Names()

    class Names:
        """What the converter asks a tokenizer for."""

        pad_token, eos_token, unk_token, bos_token = "<pad>", "</s>", "<unk>", None

        def get_vocab(self):
            return {name: i for i, name in enumerate(names)}

        def convert_ids_to_tokens(self, i):
            return names[i]

    with tempfile.TemporaryDirectory() as folder:
        model.config.architectures = ["T5ForConditionalGeneration"]
        model.config.save_pretrained(folder)
        path = Converter(folder).convert(f"{folder}/converted")
        translator = ctranslate2.Translator(path, intra_threads=num_cores(), compute_type="float32")
    tokens = [[names[i] for i in row] for row in ids]

    def run(number):
        results = translator.translate_batch(
            tokens, beam_size=beams, max_decoding_length=number, min_decoding_length=number
        )
        return min(len(result.hypotheses[0]) for result in results)

    return run


def at(states, positions):
    """Return the states (B, M, D) at positions (B, M)."""
    return states.gather(1, positions[:, :, None].expand(-1, -1, states.shape[-1]))


def mask(packed, mask_share, random_share):
    """Return masked inputs, the positions (B, M) and the labels, -100 where there are fewer."""
    import torch

    ids, real = packed["input_ids"], packed["attention_mask"] > 0
    number = math.ceil(inputs.MASKED * ids.shape[1] - 1e-4)
    chance = torch.rand(ids.shape).masked_fill(~real, -1.0)
    positions = chance.topk(number, dim=1).indices
    wanted = (inputs.MASKED * real.sum(dim=1, keepdim=True)).round()
    chosen = torch.arange(number)[None] < wanted
    originals = ids.gather(1, positions)
    fate = torch.rand(positions.shape)
    anything = torch.randint(inputs.VOCABULARY_SIZE, positions.shape)
    new = torch.where(fate < mask_share + random_share, anything, originals)
    new = torch.where(fate < mask_share, inputs.MASK_ID, new)
    masked = ids.scatter(1, positions, torch.where(chosen, new, originals))
    return packed | {"input_ids": masked}, positions, originals.masked_fill(~chosen, -100)


def tokenizer(reviews, minilm, batch, calls, variant):
    """Hugging Face's tokenizer in Rust, on one core or on all, without special tokens."""
    os.environ["TOKENIZERS_PARALLELISM"] = "true" if variant == "all_cores" else "false"
    from tokenizers import Tokenizer

    wordpiece = Tokenizer.from_file(f"{minilm}/tokenizer.json")
    wordpiece.no_truncation()
    wordpiece.no_padding()
    batches = inputs.text_batches(reviews, batch)

    def run():
        for texts in batches:
            wordpiece.encode_batch_fast(texts, add_special_tokens=False)

    return timed(run, calls)


def import_(calls, variant):
    """Importing PyTorch and the model."""
    return inputs.importing("import torch\nfrom transformers import BertModel")


def loading(checkpoint, calls, variant):
    """A model and its tokenizer from a folder; then each weight is read."""
    return inputs.loading(
        checkpoint,
        "import torch\nfrom transformers import BertForSequenceClassification as Model\n"
        "from transformers import AutoTokenizer as Tokenizer\ntorch.zeros(1)",
        "model, tokenizer = Model.from_pretrained(folder), Tokenizer.from_pretrained(folder)",
        "for weight in model.parameters(): weight.max()",
    )


def latency(short, minilm, model, batch, calls, variant):
    """From strings to labels: the fast tokenizer, the model, softmax and the best class."""
    import torch
    from transformers import BertForSequenceClassification, BertTokenizerFast

    use_all_cores()
    encode = BertTokenizerFast.from_pretrained(minilm)
    if model == "minilm":
        classifier = BertForSequenceClassification.from_pretrained(minilm, num_labels=2)
    else:
        classifier = BertForSequenceClassification(make_config(num_labels=2))
    classifier.eval()
    names = ["negative", "positive"]
    batches = itertools.cycle(inputs.text_batches(short, batch, limit=64 // batch))

    def answer():
        with torch.inference_mode():
            packed = encode(next(batches), padding="longest", truncation=True, return_tensors="pt")
            scores = classifier(**packed).logits.softmax(-1)
            return [names[i] for i in scores.argmax(-1).tolist()], scores.numpy()

    return timed(answer, calls)


def corpus(mixed, minilm, batch, length, calls, variant):
    """From strings of mixed lengths to labels: batches as a pipeline makes them, or sorted."""
    import torch
    from transformers import BertForSequenceClassification, BertTokenizerFast

    use_all_cores()
    texts = inputs.read_texts(mixed)
    if variant == "sorted":
        texts.sort(key=len)
    encode = BertTokenizerFast.from_pretrained(minilm)
    classifier = BertForSequenceClassification.from_pretrained(minilm, num_labels=2).eval()

    @torch.inference_mode()
    def answer():
        results = []
        for start in range(0, len(texts), batch):
            packed = encode(
                texts[start : start + batch],
                padding="longest",
                truncation=True,
                max_length=length,
                return_tensors="pt",
            )
            results += classifier(**packed).logits.argmax(-1).tolist()
        return results

    return timed(answer, calls)


def generate(batch, length, new_tokens, beams, calls, variant):
    """Decoding with a cache, as transformers offers it; `variant` may name a dtype."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    use_all_cores()
    model = GPT2LMHeadModel(GPT2Config()).eval().to(getattr(torch, variant or "float32"))
    token_ids = torch.from_numpy(inputs.prompts(batch, length)).long()
    mask = torch.ones_like(token_ids)

    def run(number):
        # The second makes sure that no end of text makes it shorter.
        numbers = {"max_new_tokens": number, "min_new_tokens": number}
        with torch.inference_mode():
            texts = model.generate(
                token_ids,
                attention_mask=mask,
                num_beams=beams,
                do_sample=False,
                pad_token_id=0,
                **numbers,
            )
        return texts.shape[1] - length

    return inputs.generating(run, new_tokens, calls)


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
    "latency": latency,
    "corpus": corpus,
    "generate": generate,
}

if __name__ == "__main__":
    serve(FUNCTIONS, ["torch", "transformers", "tokenizers"])
