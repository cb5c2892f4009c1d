"""Marian's tokenizer: two SentencePiece models with ids of their own, in the graph."""

import json
import shutil

import pytest
import tensorflow as tf

from keras_lm.tokenizers import MarianTokenizer, Tokenizer
from keras_lm.tokenizers.sentence_piece_model import NORMAL, UNKNOWN, Model

LANGUAGES = [
    ">>fra<< The film",
    ">>fra<<The film",
    ">>zho_Hans<<",
    ">>xxx<< a",  # no entry
    ">> a << b << c",
    "x >>fra<< y",
    ">>\n<< q",
    ">>fra>>",
]
FOREIGN = ["☃", "a ☃☃ b", "☃☃☃", "中文", "中文☃ x ☃ 中文", ">>fra<< ☃", "中"]


def lines(goldens):
    folder = goldens("tokenizers") / "sentencepiece-t5"
    rows = (folder / "expected.jsonl").read_text().split("\n")
    texts = [json.loads(row)["text"] for row in rows if row]
    return [*texts, *LANGUAGES, *FOREIGN, *(f">>fra<< {text}" for text in texts)]


@pytest.fixture
def tokenizer(tokenizer_of):
    return tokenizer_of("marian")


@pytest.fixture
def folder(tokenizer, tmp_path):
    """A published folder."""
    made = tmp_path / "opus-mt"
    made.mkdir()
    tokenizer.save_assets(made)
    config = {"tokenizer_class": "MarianTokenizer", "separate_vocabs": False, "eos_token": "</s>"}
    (made / "tokenizer_config.json").write_text(json.dumps(config))
    return made


def tokens(tokenizer, text, **arguments):
    return [t.decode() for t in tokenizer.tokens(tokenizer(text, **arguments)).numpy()]


@pytest.mark.parametrize("side, kind", [("source", "t5"), ("target", "xlnet")])
def test_ids_are_those_of_the_pieces_that_sentencepiece_makes(goldens, tokenizer, side, kind):
    sentencepiece = pytest.importorskip("sentencepiece")
    path = goldens("tokenizers") / f"sentencepiece-{kind}" / "spiece.model"
    model = sentencepiece.SentencePieceProcessor(model_file=str(path))
    ids = {token: i for i, token in enumerate(tokenizer.vocabulary)}
    tokenizer = tokenizer if side == "source" else tokenizer.target

    def expected(text):
        language, end, rest = text.partition("<<")
        if not (end and text.startswith(">>")):
            language, end, rest = "", "", text
        pieces = [language + end] * bool(end) + model.encode(rest, out_type=str)
        return [ids.get(piece, ids["<unk>"]) for piece in pieces]

    texts = lines(goldens)
    rows = tokenizer(texts).to_list()
    assert not [text for text, row in zip(texts, rows) if row != expected(text)]
    assert tokenizer.tokenize_with_offsets(texts)[0].to_list() == rows


def test_a_language_is_a_token_at_the_start_of_a_text(tokenizer):
    assert tokens(tokenizer, ">>fra<< the") == [">>fra<<", *tokens(tokenizer, "the")]
    assert tokens(tokenizer, ">>fra<<the") == [">>fra<<", *tokens(tokenizer, "the")]
    assert tokens(tokenizer, ">>fra<<") == [">>fra<<"]
    assert tokens(tokenizer, ">>xxx<< the") == ["<unk>", *tokens(tokenizer, "the")]
    assert ">>fra<<" not in tokens(tokenizer, "the >>fra<<")
    assert tokenizer.word_starts(tokenizer(">>fra<< the")).numpy()[:2].all()
    _, starts, ends = tokenizer.tokenize_with_offsets(">>fra<< the")
    assert starts[0] == 0 and ends[0] == 7 and ends[-1] == 11


def test_a_vocabulary_without_languages(tokenizer, folder):
    words = [token for token in tokenizer.vocabulary if not token.startswith(">>")]
    actual = MarianTokenizer(folder / "source.spm", folder / "target.spm", words)
    assert tokens(actual, ">>fra<< the") == ["<unk>", *tokens(tokenizer, "the")]
    assert tokens(actual, "the") == tokens(tokenizer, "the")


def test_characters_of_the_other_language(tokenizer):
    assert tokens(tokenizer, "☃☃")[-1] == "☃☃"
    assert tokens(tokenizer, "☃☃☃")[-1] == "<unk>"
    assert tokens(tokenizer, "</s>☃", parse_special=True)[-1] == "☃"


def test_special_tokens(tokenizer):
    assert tokenizer.special_tokens == {"eos": "</s>", "pad": "<pad>", "unknown": "<unk>"}
    assert tokenizer.special_id("pad") == tokenizer.vocabulary_size - 1
    assert not {"</s>", "<pad>"} & {*tokens(tokenizer, "a</s> b<pad>")}
    parsed = tokens(tokenizer, "a</s> b<pad>", parse_special=True)
    assert parsed.count("</s>") == 1 and parsed[-1] == "<pad>"
    assert "<pad>" not in tokens(tokenizer, "a</s> b<pad>", parse_special=["</s>"])


def test_text_again(tokenizer):
    ids = tokenizer.target(["Never the less", ""])
    padded = tf.concat([ids, [[0, tokenizer.special_id("pad")]] * 2], 1)
    assert tokenizer.target.detokenize(padded).numpy().tolist() == [b"Never the less", b""]
    assert tokenizer.detokenize(tokenizer([">>fra<< The film"])) == [b">>fra<< The film"]


def test_target(tokenizer, tokenizer_of):
    assert isinstance(tokenizer.target, MarianTokenizer)
    assert tokenizer.target.target is tokenizer.target
    other = tokenizer_of("wordpiece-uncased")
    assert other.target is other


def test_a_vocabulary_for_each_side(tokenizer, folder, tmp_path):
    vocabulary = ["<pad>", "<unk>", "</s>", *tokenizer.vocabulary[2:-1]]
    ids = {token: i for i, token in enumerate(vocabulary)}
    (folder / "target_vocab.json").write_text(json.dumps(ids))
    assert MarianTokenizer.from_files(folder).target.vocabulary == tokenizer.vocabulary
    (folder / "tokenizer_config.json").unlink()
    both = MarianTokenizer.from_files(folder)
    assert both.vocabulary == tokenizer.vocabulary
    assert both.target.vocabulary == vocabulary
    tokens = tokenizer.tokens(tokenizer.target(["The film"]))
    assert both.target.tokens(both.target(["The film"])).to_list() == tokens.to_list()
    new = tmp_path / "assets"
    new.mkdir()
    both.save_assets(new)
    again = MarianTokenizer.from_assets(new, both.get_config())
    assert again.target.vocabulary == vocabulary
    (folder / "target_vocab.json").unlink()
    (folder / "tokenizer_config.json").write_text('{"separate_vocabs": true}')
    with pytest.raises(ValueError, match=r"lacks target_vocab\.json"):
        MarianTokenizer.from_files(folder)


def test_one_model_for_both_sides(tokenizer, folder):
    shutil.copy(folder / "source.spm", folder / "target.spm")
    tokenizer = MarianTokenizer.from_files(folder)
    assert tokenizer.target is tokenizer


@pytest.mark.parametrize("missing", ["source.spm", "target.spm", "vocab.json"])
def test_an_incomplete_folder_is_an_error_that_names_the_file(folder, missing):
    (folder / missing).unlink()
    for cls in (Tokenizer, MarianTokenizer):
        with pytest.raises(ValueError, match=f"lacks {missing}: MarianTokenizer needs"):
            cls.from_preset(folder)


def test_published_folders(tokenizer, folder):
    for actual in (Tokenizer.from_preset(folder), MarianTokenizer.from_files(folder)):
        assert type(actual) is MarianTokenizer
        assert actual.get_config() == tokenizer.get_config()
    for name in ("source.spm", "target.spm"):
        (folder / name).unlink()
    with pytest.raises(FileNotFoundError, match=r"neither source\.spm nor target\.spm"):
        MarianTokenizer.from_files(folder)


def test_settings_of_files(tokenizer, folder):
    path = folder / "tokenizer_config.json"
    path.write_text('{"sp_model_kwargs": {"enable_sampling": true}}')
    with pytest.raises(ValueError, match="sp_model_kwargs="):
        MarianTokenizer.from_files(folder)
    size = tokenizer.vocabulary_size
    token = {"content": "<new>", "special": True}
    path.write_text(json.dumps({"added_tokens_decoder": {str(size): token}}))
    actual = MarianTokenizer.from_files(folder)
    assert actual.vocabulary_size == size + 1
    assert (
        tokens(actual, "a<new>", parse_special=True)[-1] == "<new>" != tokens(actual, "a<new>")[-1]
    )


def test_bad_vocabularies(tokenizer, folder):
    paths = [folder / name for name in ("source.spm", "target.spm")]
    with pytest.raises(ValueError, match="`unknown_token` '<unk>' is not in the vocabulary"):
        MarianTokenizer(*paths, ["</s>", "<pad>"])
    with pytest.raises(ValueError, match="`unknown_token` is None"):
        MarianTokenizer(*paths, tokenizer.vocabulary, unknown_token=None)
    with pytest.raises(FileNotFoundError, match="vocab"):
        MarianTokenizer(*paths, folder / "no.json")
    with pytest.raises(FileNotFoundError, match="`model`"):
        MarianTokenizer(folder / "no.spm", paths[1], folder / "vocab.json")
    (folder / "vocab.json").write_text('{"</s>": 0, "<unk>": 1, "<pad>": 3}')
    with pytest.raises(ValueError, match="<pad>"):
        MarianTokenizer.from_files(folder)


def test_a_model_whose_characters_are_no_pieces(tokenizer, folder):
    model = Model.FromString((folder / "source.spm").read_bytes())
    kept = [p for p in model.pieces if p.type != NORMAL or len(p.piece) > 1]
    del model.pieces[:]
    model.pieces.extend(kept)
    assert [p.type for p in kept].count(UNKNOWN) == 1
    actual = MarianTokenizer(model.SerializeToString(), folder / "target.spm", tokenizer.vocabulary)
    assert tokens(actual, "☃")[-1] == "<unk>"


def test_litert(goldens, tokenizer, in_litert):
    texts = [text for text in lines(goldens) if text not in LANGUAGES + FOREIGN]
    texts = [text for text in texts if "中文" not in text][::4]
    texts += [">>fra<< The film", ">>zho_Hans<< a", ">>zho_Hans<<"]
    for one in (tokenizer, tokenizer.target):
        expected = one(texts).to_list()
        assert in_litert(one)(texts) == expected
        assert one.tokenize_lite(tf.constant(texts)).to_list() == expected
