"""SentencePiece's files: what they are read as, written back as, and refused for."""

import json
import shutil

import numpy as np
import pytest

from keras_lm.tokenizers import SentencePieceTokenizer
from keras_lm.tokenizers.sentence_piece_model import CONTROL, UNKNOWN, Model


@pytest.fixture
def folder(goldens, tmp_path):
    """`folder("albert")` is a new folder with nothing but that model."""

    def make(kind, name="spiece.model"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(
            goldens("tokenizers") / f"sentencepiece-{kind}" / "spiece.model", tmp_path / name
        )
        return tmp_path

    return make


def write(folder, **files):
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(json.dumps(content))
    return folder


def rules(tokenizer):
    return {name for name, value in tokenizer.get_config().items() if value is True}


CLEANED = {"strip_accents", "straighten_quotes", "collapse_whitespace", "split_digit_commas"}


@pytest.mark.parametrize("kind", ["albert", "t5", "xlnet"])
def test_assets_round_trip(goldens, kind, tmp_path):
    golden = goldens("tokenizers") / f"sentencepiece-{kind}"
    tokenizer = SentencePieceTokenizer.from_files(golden)
    tokenizer.save_assets(tmp_path)
    assert (tmp_path / "spiece.model").read_bytes() == (golden / "spiece.model").read_bytes()
    config = json.loads(json.dumps(tokenizer.get_config()))
    again = SentencePieceTokenizer.from_assets(tmp_path, config)
    assert again.get_config() == tokenizer.get_config()
    assert again.vocabulary == tokenizer.vocabulary
    texts = ["Hello ``wörld'' 1990, [MASK]<extra_id_0><eop>"]
    for parse_special in (False, True):
        expected = tokenizer(texts, parse_special=parse_special).to_list()
        assert again(texts, parse_special=parse_special).to_list() == expected


@pytest.mark.parametrize(
    "name",
    [
        "spiece.model",
        "spm.model",
        "tokenizer.model",
        "sentencepiece.bpe.model",
        "assets/tokenizer/vocabulary.spm",
    ],
)
def test_a_bare_model(folder, name):
    tokenizer = SentencePieceTokenizer.from_files(folder("albert", name))
    assert not rules(tokenizer)
    assert tokenizer.special_tokens["mask"] == "[MASK]"
    assert tokenizer.special_tokens["unknown"] == "<unk>"


def test_the_family_comes_from_configurations(folder):
    path = folder("albert")
    assert rules(SentencePieceTokenizer.from_files(path, family="albert")) == CLEANED | {
        "lowercase"
    }
    write(path, config__json={"model_type": "albert"})
    assert rules(SentencePieceTokenizer.from_files(path)) == CLEANED | {"lowercase"}
    write(path, tokenizer_config__json={"do_lower_case": False, "keep_accents": True})
    assert rules(SentencePieceTokenizer.from_files(path)) == CLEANED - {"strip_accents"}
    assert rules(SentencePieceTokenizer.from_files(path, lowercase=True)) > {"lowercase"}
    write(path, tokenizer_config__json={"tokenizer_class": "XLNetTokenizerFast"})
    assert rules(SentencePieceTokenizer.from_files(path)) == CLEANED
    assert not rules(SentencePieceTokenizer.from_files(path, family="plain"))


def test_t5_adds_extra_ids(folder):
    path = write(folder("t5"), config__json={"model_type": "t5"})
    assert SentencePieceTokenizer.from_files(path).vocabulary_size == 1100
    write(path, tokenizer_config__json={"extra_ids": 2})
    tokenizer = SentencePieceTokenizer.from_files(path)
    assert tokenizer.vocabulary[1000:] == ["<extra_id_1>", "<extra_id_0>"]


def test_mt5_has_extra_ids_in_its_model(folder):
    path = folder("t5", "sentencepiece.model")
    model = Model.FromString((path / "sentencepiece.model").read_bytes())
    for i in reversed(range(100)):
        model.pieces.add(piece=f"▁<extra_id_{i}>", score=0.0)
    (path / "sentencepiece.model").write_bytes(model.SerializeToString())
    tokenizer = SentencePieceTokenizer.from_files(path, family="t5")
    assert tokenizer.vocabulary_size == len(model.pieces)
    (path / "operative_config.gin").write_text("num_heads = 8\n")
    assert SentencePieceTokenizer.from_files(path).special_tokens == tokenizer.special_tokens
    assert tokenizer.special_tokens["eos"] == "</s>"


def test_a_tokenizer_json_beside_the_model(folder):
    steps = [
        {"type": "Replace", "pattern": {"String": "``"}, "content": '"'},
        {"type": "Lowercase"},
    ]
    path = write(
        folder("albert"),
        tokenizer__json={
            "model": {"type": "Unigram"},
            "normalizer": {"type": "Sequence", "normalizers": steps},
            "added_tokens": [{"id": 1000, "content": "[E]", "special": True}],
        },
    )
    tokenizer = SentencePieceTokenizer.from_files(path)
    assert rules(tokenizer) == {"lowercase", "straighten_quotes"}
    assert tokenizer.vocabulary[-1] == "[E]"


def test_xlm_roberta_counts_as_fairseq_does(folder):
    sentencepiece = pytest.importorskip("sentencepiece")
    path = folder("t5", "sentencepiece.bpe.model")
    model = Model.FromString((path / "sentencepiece.bpe.model").read_bytes())
    for piece, name in zip(model.pieces, ("<unk>", "<s>", "</s>")):
        piece.piece, piece.type = name, UNKNOWN if name == "<unk>" else CONTROL
    (path / "sentencepiece.bpe.model").write_bytes(model.SerializeToString())
    write(path, tokenizer_config__json={"tokenizer_class": "XLMRobertaTokenizer"})
    tokenizer = SentencePieceTokenizer.from_files(path)
    assert tokenizer.vocabulary[:4] == ["<s>", "<pad>", "</s>", "<unk>"]
    assert tokenizer.special_id("mask") == tokenizer.vocabulary_size - 1 == len(model.pieces) + 1
    reference = sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString())
    texts = ["The end of 1,990", "", "a \u4e2d<mask></s> was  éo", "☃"]
    expected = [[i + 1 if i else 3 for i in ids] for ids in reference.encode(texts)]
    assert tokenizer(texts).to_list() == tokenizer.tokenize_lite(texts).to_list() == expected
    assert tokenizer("<mask>", parse_special=True).numpy().tolist() == [len(model.pieces) + 1]
    assert tokenizer.tokenize_with_offsets(texts)[0].to_list() == expected
    tokenizer.save_assets(path)
    again = SentencePieceTokenizer.from_assets(path, tokenizer.get_config())
    assert again.vocabulary == tokenizer.vocabulary and again(texts).to_list() == expected


def test_deberta_has_its_mask_after_the_model(goldens, tmp_path):
    """As published: spm.model, whose first pieces are special, and no word of the mask."""
    golden = goldens("tokenizers") / "sentencepiece-t5"
    model = Model.FromString((golden / "spiece.model").read_bytes())
    others = model.pieces[3:]
    del model.pieces[:]
    for piece in ("[PAD]", "[CLS]", "[SEP]"):
        model.pieces.add(piece=piece, type=CONTROL)
    model.pieces.add(piece="[UNK]", type=UNKNOWN)
    model.pieces.extend(others)
    (tmp_path / "spm.model").write_bytes(model.SerializeToString())
    write(tmp_path, config__json={"model_type": "deberta-v2"})
    write(tmp_path, tokenizer_config__json={"do_lower_case": False, "vocab_type": "spm"})
    tokenizer = SentencePieceTokenizer.from_files(tmp_path)
    number = len(model.pieces)
    assert tokenizer.token_to_id("[MASK]") == tokenizer.special_id("mask") == number
    assert tokenizer.vocabulary_size == number + 1
    roles = {"pad": "[PAD]", "cls": "[CLS]", "sep": "[SEP]", "unknown": "[UNK]"}
    assert tokenizer.special_tokens.items() >= roles.items()
    lines = (golden / "expected.jsonl").read_text().split("\n")
    rows = [json.loads(line) for line in lines if line]
    got = tokenizer([row["text"] for row in rows]).to_list()
    assert got == [[id + 1 for id in row["raw"]] for row in rows]
    actual = tokenizer("film[MASK]film[SEP]", parse_special=True).numpy().tolist()
    assert actual.count(number) == 1 and actual[-1] == 2
    write(tmp_path, tokenizer_config__json={"split_by_punct": True})
    with pytest.raises(ValueError, match="split_by_punct=True"):
        SentencePieceTokenizer.from_files(tmp_path)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"tokenizer_config__json": {"tokenizer_class": "CamembertTokenizer"}}, "Camembert"),
        ({"tokenizer_config__json": {"tokenizer_class": "XLMRobertaTokenizer"}}, "begins with"),
        ({"tokenizer_config__json": {"sp_model_kwargs": {"nbest_size": -1}}}, "sp_model_kwargs"),
        ({"tokenizer_config__json": {"mask_token": "[GONE]"}}, "mask_token=None"),
        ({"tokenizer__json": {"model": {"type": "WordPiece"}}}, "WordPiece"),
        ({"tokenizer_config__json": {"tokenizer_class": "BertTokenizer"}}, "BertTokenizer"),
        ({"added_tokens__json": {"x": 1005}}, "without a gap"),
        ({"added_tokens__json": {"x": "5"}}, "the id '5', and ids are whole numbers"),
        ({"tokenizer_config__json": {"extra_ids": 10**10}}, "`extra_ids` 10000000000"),
        ({"tokenizer__json": {"model": []}}, "not have the form of published"),
    ],
)
def test_files_that_ask_for_something_else(folder, files, message):
    with pytest.raises(ValueError, match=message):
        SentencePieceTokenizer.from_files(write(folder("albert"), **files))


def test_t5s_legacy_decides_what_follows_a_token(folder):
    path = write(folder("t5"), config__json={"model_type": "t5"})
    results = {}
    for legacy in (True, False):
        write(path, tokenizer_config__json={"legacy": legacy})
        tokenizer = SentencePieceTokenizer.from_files(path)
        texts = ["the<extra_id_0> film <extra_id_1>", "the", "<extra_id_2>the film"]
        ids = tokenizer(texts, parse_special=["<extra_id_0>", "<extra_id_1>", "<extra_id_2>"])
        results[legacy] = [[t.decode() for t in row] for row in tokenizer.tokens(ids).to_list()]
        assert tokenizer(texts[1]).numpy().tolist() == ids[1].numpy().tolist()
    film = results[True][0][2:-1]
    assert results[True][0][:2] == ["▁the", "<extra_id_0>"] and film[0].startswith("▁")
    assert "".join(results[False][0]) == "▁the<extra_id_0>film<extra_id_1>"
    assert "".join(results[True][2]) == "<extra_id_2>▁the▁film"
    assert "".join(results[False][2]) == "<extra_id_2>the▁film"
    assert results[True][1] == results[False][1] == ["▁the"]


def test_no_model(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"spiece\.model"):
        SentencePieceTokenizer.from_files(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"nowhere\.model"):
        SentencePieceTokenizer(tmp_path / "nowhere.model")
    for model in (None, 10**15, [1]):
        with pytest.raises(ValueError, match=r"`model` is a .*pass the path"):
            SentencePieceTokenizer(model)


def test_damaged_models(folder):
    path = folder("t5") / "spiece.model"
    data = path.read_bytes()
    model = Model.FromString(data)
    only_pieces = Model(pieces=model.pieces).SerializeToString()
    del model.pieces[2]  # the unknown token
    cases = {
        b"": "not a SentencePiece model",
        b"hello\nworld\n": "not a SentencePiece model",
        data[: len(data) // 2]: "cut off",
        data[:1000]: "cut off",
        only_pieces: "cut off",
        model.SerializeToString(): "0 unknown tokens",
        data.replace(b"the", b"t\xffe", 1): "which is not UTF-8",
    }
    for damaged, message in cases.items():
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=message):
            SentencePieceTokenizer.from_files(path.parent)


def test_an_entry_stands_twice(folder):
    path = folder("t5") / "spiece.model"
    model = Model.FromString(path.read_bytes())
    model.pieces.append(model.pieces[50])
    with pytest.raises(ValueError, match="twice"):
        SentencePieceTokenizer(model.SerializeToString())


@pytest.mark.parametrize(
    "piece, message",
    [
        ({"piece": "a" * 1001}, "piece 3 has 1001 bytes"),
        ({"piece": ""}, "piece 3 has 0 bytes"),
        ({"score": float("nan")}, "the score nan"),
    ],
)
def test_pieces_beyond_the_limits(folder, piece, message):
    path = folder("t5") / "spiece.model"
    model = Model.FromString(path.read_bytes())
    for name, value in piece.items():
        setattr(model.pieces[3], name, value)
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ValueError, match=rf"spiece\.model.*{message}"):
        SentencePieceTokenizer.from_files(path.parent)


def first_node_beyond(units, texts):
    units[0] = (units[0] & 0x3FF) | (len(units) << 10)
    return units, texts


@pytest.mark.parametrize(
    "damage",
    [first_node_beyond, lambda units, texts: (units, texts[:-1] + b"x" * 1001 + b"\0")],
)
def test_tables_beyond_the_limits(folder, damage):
    model = Model.FromString((folder("t5") / "spiece.model").read_bytes())
    table = model.normalizer_spec.precompiled_charsmap
    size = int.from_bytes(table[:4], "little")
    units = np.frombuffer(table[4 : 4 + size], "<u4").copy()
    units, texts = damage(units, table[4 + size :])
    model.normalizer_spec.precompiled_charsmap = table[:4] + units.tobytes() + texts
    with pytest.raises(ValueError, match="damaged table of characters"):
        SentencePieceTokenizer(model.SerializeToString())
