"""A `.tflite` for MediaPipe: what the metadata says, by the schema, and what the network answers.

`benchmarks/mediapipe_texts.py` has MediaPipe itself answer.
"""

import re
import zipfile

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter
from flatbuffers import encode, number_types
from flatbuffers.table import Table
from tensorflow.lite.python import schema_py_generated as schema

from keras_lm import export, models, tasks
from keras_lm.export import check
from keras_lm.tokenizers import BytePairTokenizer, WordPieceTokenizer, WordTokenizer
from keras_lm.tokenizers.sentence_piece_model import BYTES

NUMBERS = {
    "byte": number_types.Int8Flags,
    "ubyte": number_types.Uint8Flags,
    "int": number_types.Int32Flags,
    "uint": number_types.Uint32Flags,
    "float": number_types.Float32Flags,
}
WORDS = ["<unk>", "<pad>", "the", "film", "was", "good", "bad", "!"]


class SchemaReader:
    """Reads flatbuffers by the text of their schema, as dicts of the fields that are there."""

    def __init__(self, text):
        text = re.sub(r"//.*", "", text)
        self.tables, self.choices = {}, {}
        for kind, name, body in re.findall(r"(table|enum|union)\s+(\w+)[^{]*\{([^}]*)\}", text):
            if kind == "table":
                self.tables[name] = re.findall(r"(\w+)\s*:\s*(\[?\w+\]?)", body)
            else:
                members = [each.split("=")[0].strip() for each in body.split(",") if each.strip()]
                self.choices[name] = (["NONE"] if kind == "union" else []) + members
                if kind == "union":
                    self.tables[name] = None
        (self.identifier,) = re.findall(r'file_identifier\s+"(\w+)"', text)
        (self.root,) = re.findall(r"root_type\s+(\w+)", text)

    def read(self, data):
        assert bytes(data[4:8]).decode() == self.identifier
        return self._table(
            self.root, Table(data, encode.Get(number_types.UOffsetTFlags.packer_type, data, 0))
        )

    def _table(self, kind, table):
        results, slot = {}, 4
        for name, type in self.tables[kind]:
            if type in self.choices and self.tables.get(type, 1) is None:  # a union has two slots
                place = table.Offset(slot)
                number = place and table.Get(number_types.Uint8Flags, place + table.Pos)
                slot += 2
                type = self.choices[type][number]
                if number:
                    results[f"{name}_type"] = type
            place = table.Offset(slot)
            slot += 2
            if place and type != "NONE":
                results[name] = self._value(type, table, place + table.Pos)
        return results

    def _value(self, type, table, place):
        if type.startswith("["):
            start, inner = table.Vector(place - table.Pos), type.strip("[]")
            size = NUMBERS[inner].bytewidth if inner in NUMBERS else 4
            number = table.VectorLen(place - table.Pos)
            return [self._value(inner, table, start + i * size) for i in range(number)]
        if type == "string":
            return table.String(place).decode()
        if type in self.tables:
            return self._table(type, Table(table.Bytes, table.Indirect(place)))
        if type in self.choices:
            return self.choices[type][table.Get(number_types.Uint8Flags, place)]
        return table.Get(NUMBERS[type], place)


@pytest.fixture(scope="module")
def read_metadata(goldens):
    reader = SchemaReader((goldens("mediapipe") / "metadata_schema.fbs").read_text())

    def read(path):
        """The description, and what its place in the `.tflite` is."""
        data = path.read_bytes()
        model = schema.Model.GetRootAs(data, 0)
        entries = map(model.Metadata, range(model.MetadataLength()))
        (number,) = [e.Buffer() for e in entries if e.Name() == b"TFLITE_METADATA"]
        return reader.read(bytearray(model.Buffers(number).DataAsNumpy()))

    return read


def rows_of(task, text):
    """The ids that MediaPipe passes, uncut, if its tokenizer finds ours."""
    tokenizer = task.tokenizer
    pieces = tokenizer([text.lower()]).to_list()[0]
    ids = [tokenizer.special_id("cls"), *pieces, tokenizer.special_id("sep")]
    return {"ids": [ids], "mask": [[1] * len(ids)], "segment_ids": [[0] * len(ids)]}


def ask(path, **inputs):
    """The stock interpreter's answer."""
    interpreter = Interpreter(str(path))
    serve = interpreter.get_signature_runner("serving_default")
    return serve(**{name: np.array(rows, "int32") for name, rows in inputs.items()})


@pytest.fixture(scope="module")
def classifier(make_backbone, tokenizer, tmp_path_factory):
    """A classifier, whose texts are padded to their own length, and its `.tflite`."""
    task = tasks.TextClassifier(make_backbone(), class_names=["bad", "good"], tokenizer=tokenizer)
    path = tmp_path_factory.mktemp("mediapipe") / "critic.tflite"
    return task, task.export(path, format="litert", tokenizer="metadata")


def test_a_classifier_describes_its_tensors_and_files(classifier, read_metadata):
    task, path = classifier
    actual = read_metadata(path)
    (graph,) = actual["subgraph_metadata"]
    model = schema.Model.GetRootAs(path.read_bytes(), 0)
    tensors = map(model.Subgraphs(0).Tensors, model.Subgraphs(0).InputsAsNumpy().tolist())
    order = [re.search("(segment_ids|ids|mask)", t.Name().decode()).group() for t in tensors]
    assert [each["name"] for each in graph["input_tensor_metadata"]] == order
    assert sorted(order) == ["ids", "mask", "segment_ids"]
    assert {e["content"]["content_properties_type"] for e in graph["input_tensor_metadata"]} == {
        "FeatureProperties"
    }
    (unit,) = graph["input_process_units"]
    assert unit["options_type"] == "BertTokenizerOptions"
    assert unit["options"] == {"vocab_file": [{"name": "vocab.txt", "type": "VOCABULARY"}]}
    (scores,) = graph["output_tensor_metadata"]
    assert scores["name"] == "scores"
    assert scores["associated_files"] == [{"name": "labels.txt", "type": "TENSOR_AXIS_LABELS"}]
    assert actual["min_parser_version"] == "1.2.1" and actual["name"] == "TextClassifier"

    with zipfile.ZipFile(path) as archive:
        assert {info.compress_type for info in archive.infolist()} == {zipfile.ZIP_STORED}
        assert archive.read("labels.txt") == b"bad\ngood\n"
        assert archive.read("vocab.txt").decode().split("\n")[:-1] == task.tokenizer.vocabulary


def test_the_stock_interpreter_answers_as_the_task(classifier):
    task, path = classifier
    for text in ("the film was good", "", "LOUD films, a bad song! " * 9):  # the last is too long
        expected = task.classify([text], verbose=0)["scores"]
        np.testing.assert_allclose(ask(path, **rows_of(task, text))["scores"], expected, atol=1e-5)


def test_weights_keep_their_values_and_their_places(classifier):
    _, path = classifier
    data = path.read_bytes()
    model = schema.Model.GetRootAs(data, 0)
    assert model.SubgraphsLength() == 1
    buffers = [model.Buffers(i) for i in range(model.BuffersLength())]
    arrays = [buffer.DataAsNumpy() for buffer in buffers if not buffer.DataIsNone()]
    start = np.frombuffer(data, np.uint8).__array_interface__["data"][0]
    assert len(arrays) > 10
    assert {(a.__array_interface__["data"][0] - start) % 16 for a in arrays} == {0}


def test_answers_to_texts_decide_whether_it_is_written(
    make_backbone, tokenizer, tmp_path, checked_here
):
    task = tasks.FeatureExtractor(
        make_backbone(), tokenizer=tokenizer, padding="fixed", sequence_length=12
    )
    texts = ["the film was good", "", "a bad song " * 9]
    options = {"format": "litert", "tokenizer": "metadata", "weights": "int8", "texts": texts}
    with pytest.raises(export.ExportCheckError, match="embedding differs by"):
        task.export(tmp_path / "vectors.tflite", **options, tolerance=1e-9)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("checked_here")
def test_check_asks_with_ids(classifier, texts):
    task, path = classifier
    report = check(path, task, texts)
    assert report.differences["scores"] <= 1e-5
    assert report.num_bytes == path.stat().st_size


def test_words_are_split_at_white_space(read_metadata, tmp_path):
    tokenizer = WordTokenizer(WORDS, "<unk>", "<pad>", splitter="whitespace")
    task = tasks.TextClassifier(
        models.WordVectorBackbone(len(WORDS), 8),
        class_names=["bad", "good"],
        tokenizer=tokenizer,
        sequence_length=6,
    )
    path = task.export(tmp_path / "critic.tflite", format="litert", tokenizer="metadata")
    (graph,) = read_metadata(path)["subgraph_metadata"]
    (ids,) = graph["input_tensor_metadata"]
    (unit,) = ids["process_units"]
    assert unit["options_type"] == "RegexTokenizerOptions" and "input_process_units" not in graph
    assert unit["options"]["vocab_file"] == [{"name": "vocab.txt", "type": "VOCABULARY"}]
    lines = zipfile.ZipFile(path).read("vocab.txt").decode().splitlines()
    known = {word: int(i) for word, i in map(str.split, lines)}
    assert known["<PAD>"] == len(WORDS) and "<START>" not in known and "<pad>" not in known
    # (In Python, \s stands for the pattern's white space.)
    for text in ("the film\u3000was  good ! good good", "The <pad> film", "", "\ta\xa0bad one "):
        words = [known.get(word, known["<UNKNOWN>"]) for word in text.split()][:6]
        row = words + [known["<PAD>"]] * (6 - len(words))
        expected = task.classify([text], verbose=0)["scores"]
        np.testing.assert_allclose(ask(path, ids=[row])["scores"], expected, atol=1e-5)


def test_what_mediapipe_cannot_run_is_refused(make_backbone, tokenizer, tmp_path):
    def refuses(task, message):
        with pytest.raises(ValueError, match=message):
            task.export(tmp_path / "model.tflite", format="litert", tokenizer="metadata")

    def classifier(backbone=None, **arguments):
        arguments = {"tokenizer": tokenizer, "num_classes": 2} | arguments
        return tasks.TextClassifier(backbone or make_backbone(), **arguments)

    def extractor(**arguments):
        return tasks.FeatureExtractor(make_backbone(), tokenizer=tokenizer, **arguments)

    vocabulary = tokenizer.vocabulary
    refuses(tasks.TextRegressor(make_backbone(), tokenizer=tokenizer), "no runner for this TextReg")
    refuses(extractor(pooling="none"), "FeatureExtractor with one vector for each text")
    refuses(tasks.Ensemble([classifier(), classifier()]), "no runner for this ClassifierEnsemble")
    refuses(tasks.MultiTask({"a": classifier()}), r"runs one task: export those of \['a'\]")
    refuses(classifier(tokenizer=None), "no tokenizer")
    refuses(classifier(text_pair=True), "takes pairs")
    refuses(classifier(parse_special=True), "finds no special tokens")
    refuses(extractor(prompt="query: "), "prompt=None, and let your program put 'query: ' there")
    refuses(classifier(class_names=["a\nb", "c"]), "is not one line")
    cased = WordPieceTokenizer([*vocabulary, "A"], lowercase=False)
    refuses(classifier(make_backbone(vocabulary_size=26), tokenizer=cased), "keeps capitals")
    special = {"pad_token": "<pad>", "cls_token": "<s>", "sep_token": "</s>"}
    entries = [*special.values(), *BYTES.values()]
    pairs = BytePairTokenizer(entries, [], **special)
    backbone = make_backbone(vocabulary_size=len(entries))
    refuses(classifier(backbone, tokenizer=pairs), "no tokenizer like BytePairTokenizer")
    template = ("$A:0 [SEP]:0", "$A:0 [SEP]:0 $B:1 [SEP]:1")
    after = WordPieceTokenizer(vocabulary, lowercase=True, template=template)
    refuses(classifier(tokenizer=after), "0 special tokens before a text and 1 after it")
    marks = WordTokenizer(vocabulary, "[UNK]", "[PAD]")
    words = models.WordVectorBackbone(len(vocabulary), 4)
    refuses(classifier(words, tokenizer=marks), "splitter='punctuation', by which marks are words")
    with pytest.raises(ValueError, match="pass format='litert', too"):
        classifier().export(tmp_path / "model", tokenizer="metadata")
    with pytest.raises(ValueError, match=r"tokenizer='none': use one of .*'metadata'.*, or None"):
        classifier().export(tmp_path / "model.tflite", format="litert", tokenizer="none")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_loops_are_refused(tmp_path):
    tokenizer = WordTokenizer(WORDS, "<unk>", "<pad>", splitter="whitespace")
    task = tasks.TextClassifier(
        models.PairLSTMBackbone(len(WORDS), 4, hidden_dim=4, num_layers=1, pooled_dim=4),
        num_classes=2,
        tokenizer=tokenizer,
    )
    with pytest.raises(ValueError, match="has loops"):
        task.export(tmp_path / "model.tflite", format="litert", tokenizer="metadata")
    assert list(tmp_path.iterdir()) == []
