"""List the entries that a version of transformers writes into the files of each tokenizer.

    python benchmarks/tokenizer_files.py OUT.json

Run it in an environment with transformers, sentencepiece and tokenizers, and without keras_lm. It
makes a small vocabulary for each class, saves the tokenizer, and writes for each file the names of
its entries and their values: those that the tests compare with our tables
(`tests/goldens/tokenizers/written_by_transformers.json` has one such list per version).
"""

import json
import pathlib
import sys
import tempfile

import sentencepiece
import tokenizers
import transformers

TEXTS = ["the cat sat on the mat , and the dog ran .", "a dull film 's end isn't near 12 34"] * 40
WORD_PIECES = ["BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer", "MPNetTokenizer"]
BYTE_PAIRS = ["GPT2Tokenizer", "RobertaTokenizer", "BartTokenizer", "LongformerTokenizer"]
PIECES = {
    "AlbertTokenizer": "spiece.model",
    "T5Tokenizer": "spiece.model",
    "XLNetTokenizer": "spiece.model",
    "ReformerTokenizer": "spiece.model",
    "DebertaV2Tokenizer": "spm.model",
    "XLMRobertaTokenizer": "sentencepiece.bpe.model",
    "LlamaTokenizer": "tokenizer.model",
    "GemmaTokenizer": "tokenizer.model",
}
GENERIC = "PreTrainedTokenizerFast"  # ModernBERT's
LONGEST = 60  # characters of a value that is kept


def byte_pairs():
    """Return a small byte-level BPE."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", "<|endoftext|>", "[CLS]", "[SEP]"]
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=special,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(TEXTS, trainer)
    return made


def folders(root):
    """Yield the name of a class, and a folder with its vocabulary."""
    letters = sorted({c for text in TEXTS for c in text} - {" "})
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<s>", "</s>", "<pad>", "<mask>"]
    for name in WORD_PIECES:
        folder = made(root, name)
        words = [*special, "<unk>", *letters, *(f"##{letter}" for letter in letters)]
        (folder / "vocab.txt").write_text("\n".join(words) + "\n")
        yield name, folder
    for name in BYTE_PAIRS:
        folder = made(root, name)
        byte_pairs().model.save(str(folder))
        yield name, folder
    folder = made(root, GENERIC)
    byte_pairs().save(str(folder / "tokenizer.json"))
    yield GENERIC, folder
    folder = made(root, "OpenAIGPTTokenizer")
    entries = ["<unk>", *letters, *(f"{letter}</w>" for letter in letters), "th", "the</w>"]
    (folder / "vocab.json").write_text(json.dumps({e: i for i, e in enumerate(entries)}))
    (folder / "merges.txt").write_text("#version: 0.2\nt h\nth e</w>\n")
    yield "OpenAIGPTTokenizer", folder
    for name, file in PIECES.items():
        folder = made(root, name)
        train_pieces(folder / file, "bpe" if name in ("LlamaTokenizer", "GemmaTokenizer") else "")
        yield name, folder
    folder = made(root, "MarianTokenizer")
    for file in ("source.spm", "target.spm"):
        train_pieces(folder / file)
    model = sentencepiece.SentencePieceProcessor(str(folder / "source.spm"))
    entries = [*map(model.id_to_piece, range(model.get_piece_size())), "<pad>"]
    (folder / "vocab.json").write_text(json.dumps({e: i for i, e in enumerate(entries)}))
    yield "MarianTokenizer", folder
    yield "ByT5Tokenizer", made(root, "ByT5Tokenizer")
    folder = made(root, "TransfoXLTokenizer")
    words = sorted({word for text in TEXTS for word in text.split()})
    (folder / "vocab.txt").write_text("\n".join(["<eos>", "<unk>", *words]) + "\n")
    yield "TransfoXLTokenizer", folder


def made(root, name):
    folder = root / name
    folder.mkdir()
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": name}))
    return folder


def train_pieces(path, kind=""):
    with path.open("wb") as file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(TEXTS),
            model_writer=file,
            vocab_size=60 if not kind else 120,
            model_type=kind or "unigram",
            byte_fallback=False,
            hard_vocab_limit=False,
            user_defined_symbols=["[CLS]", "[SEP]", "<pad>"],
            minloglevel=2,
        )


def entries(folder):
    """Return for each file of a saved tokenizer its entries, and those of each component."""
    results = {}
    for path in sorted(folder.glob("*.json")):
        if path.name in ("vocab.json", "target_vocab.json"):
            continue
        stated = json.loads(path.read_text(encoding="utf-8"))
        results[path.name] = {name: short(value) for name, value in stated.items()}
        if path.name == "tokenizer.json":
            results["components"] = sorted(
                {json.dumps(row) for part in stated for row in components(part, stated[part])}
            )
    return results


def components(part, value):
    """Yield the part, the type and the entries of each component of a tokenizer.json."""
    if part == "added_tokens":
        for token in value:
            yield part, "", sorted(token)
    elif isinstance(value, dict):
        yield part, value.get("type", ""), sorted(value)
        for inner in ("normalizers", "pretokenizers", "processors", "decoders"):
            for step in value.get(inner, []):
                yield from components(part, step)


def short(value):
    if isinstance(value, dict):
        return f"{len(value)} entries: {', '.join(sorted(map(str, value))[:3])}"[:LONGEST]
    if isinstance(value, list):
        return f"a list of {len(value)}"
    return value


def main(out):
    results, refused = {}, {}
    with tempfile.TemporaryDirectory() as root:
        for name, folder in folders(pathlib.Path(root)):
            for kind in dict.fromkeys([name, f"{name.removesuffix('Fast')}Fast"]):
                saved = folder / f"saved-{kind}"
                try:
                    cls = getattr(transformers, kind)
                    cls.from_pretrained(str(folder)).save_pretrained(str(saved))
                    results[kind] = entries(saved)
                except (
                    Exception
                ) as error:  # a class that this version does not have, or cannot save
                    refused[kind] = f"{type(error).__name__}: {str(error)[:120]}"
    for name, reason in refused.items():
        print(f"{name}: {reason}")
    table = {"transformers": transformers.__version__, "written": results}
    pathlib.Path(out).write_text(json.dumps(table, indent=1, ensure_ascii=False) + "\n")
    print(f"transformers {transformers.__version__}: {len(results)} classes")


if __name__ == "__main__":
    main(*sys.argv[1:])
