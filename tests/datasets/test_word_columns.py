"""Files of words as they are found: which columns are read, and what is refused."""

import re
import warnings

import pytest

from keras_lm.data import read_examples, read_published

# name → (content, sentences as "word/LABEL …", what the warning of the choice says or None)
READ = {
    "CoNLL-2000": (
        "the DT B-NP\npound NN I-NP\n# # I-NP\n\nYes UH O\n",
        ["the/B-NP pound/I-NP #/I-NP", "Yes/O"],
        None,
    ),
    "CoNLL-2002": ("El DA O\nOslo NC B-LOC\n( Fpa O\n", ["El/O Oslo/B-LOC (/O"], None),
    "CoNLL-2003": (
        "-DOCSTART- -X- -X- O\n\nEU NNP I-NP I-ORG\nruns VBZ I-VP O\n\nIvo NNP I-NP I-PER\n",
        ["EU/I-ORG runs/O", "Ivo/I-PER"],
        None,
    ),
    "CoNLL-2003 with a header": (
        "Word POS Chunk NER\n-DOCSTART- -X- O O\n\nEU NNP B-NP B-ORG\nruns VBZ B-VP O\n",
        ["EU/B-ORG runs/O"],
        None,
    ),
    "entities without prefixes beside chunks": (
        "EU NNP B-NP ORG\nruns VBZ B-VP O\n",
        ["EU/ORG runs/O"],
        None,
    ),
    "CoNLL-2012": (
        "#begin document (x); part 000\n"
        "x 0 0 Ada NNP (NP*) - - - A (PERSON) (ARG0*) -\n"
        "x 0 1 saw VBD (VP* see 01 1 A * (V*) -\n"
        "x 0 2 New NNP (NP* - - - A (GPE* (ARG1* -\n"
        "x 0 3 York NNP *))) - - - A *) *) -\n\n#end document\n",
        ["Ada/B-PERSON saw/O New/B-GPE York/I-GPE"],
        "words from column 4 and labels from column 11",
    ),
    "CoNLL-U with entities in MISC": (
        "# sent_id = 1\n# text = Vámonos a Oslo\n"
        "1-2\tVámonos\t_\t_\t_\t_\t_\t_\t_\t_\n"
        "1\tvamos\tir\tVERB\t_\t_\t0\troot\t_\tNER=O\n"
        "2\tnos\tnos\tPRON\t_\t_\t1\tobj\t_\t_\n"
        "2.1\tnada\t_\t_\t_\t_\t_\t_\t_\t_\n"
        "3\tOslo\tOslo\tPROPN\t_\tCase=Nom\t1\tobl\t_\tNER=B-LOC|SpaceAfter=No\n\n",
        ["vamos/O nos/O Oslo/B-LOC"],
        "column 10 of 10, where they are NER=",
    ),
    "CoNLL-U with a last column": (
        "1\tOn\ton\tADP\t_\t_\t0\tx\t_\t_\tO\n2\tOslo\tOslo\tPROPN\t_\t_\t1\tx\t_\t_\tB-LOC\n",
        ["On/O Oslo/B-LOC"],
        "column 11 of 11",
    ),
    "CoNLL-U Plus": (
        "# global.columns = ID FORM UPOS NER\n1\tOn\tADP\tO\n2\tOslo\tPROPN\tLOC\n",
        ["On/O Oslo/LOC"],
        "column 4 of 4",
    ),
    "Universal NER": (
        "# sent_id = 1\n# text = On Oslo\n1\tOn\tO\t-\tann\n2\tOslo\tB-LOC\t-\tann\n",
        ["On/O Oslo/B-LOC"],
        "column 3 of 5",
    ),
    "GermEval": (
        "#\thttp://de.example.org/wiki/M [2009-10-17]\n1\tDer\tO\tO\n2\tIvo\tB-PER\tO\n\n"
        "#\tn-tv.de vom 26.02.2005 [2005-02-26]\n1\tUni\tB-ORG\tO\n2\tOslo\tI-ORG\tB-LOC\n",
        ["Der/O Ivo/B-PER", "Uni/B-ORG Oslo/I-ORG"],
        "Column 4 has labels, too",
    ),
    "WNUT-17": (
        "@ivo\tO\n#oslo\tB-location\nhttp://t.co/x\tO\n\t\n#now\tO\nEmpire\tB-location\n",
        ["@ivo/O #oslo/B-location http://t.co/x/O", "#now/O Empire/B-location"],
        None,
    ),
    "MultiCoNER": (
        "# id a1b2\tdomain=en\n\nmarta _ _ B-PER\nsold _ _ O\n\n# id c3 x domain=en\nmill _ _ O\n",
        ["marta/B-PER sold/O", "mill/O"],
        None,
    ),
    "WikiANN": (
        "en:Ada\tB-PER\nen:x\tO\nen:y\tO\n",
        ["Ada/B-PER x/O y/O"],
        "'en:' before each word",
    ),
    "Few-NERD": (
        "Ada\tperson-actor\nwas\tO\n\nOslo\tlocation-GPE\n",
        ["Ada/person-actor was/O", "Oslo/location-GPE"],
        None,
    ),
    "one class": (
        "Selegiline\tB\nwas\tO\nlow\tB\nblood\tI\n",
        ["Selegiline/B was/O low/B blood/I"],
        "labels such as B, I do not mark entities",
    ),
    "BMES": (
        "中\tB-LOC\n国\tM-LOC\n人\tE-LOC\n",
        ["中/B-LOC 国/M-LOC 人/E-LOC"],
        None,
    ),
    "other dashes": (
        "Ada\tB_PER\nran\tO\n",
        ["Ada/B_PER ran/O"],
        None,
    ),
    "BMEWO": ("中\tB-LOC\n国\tE-LOC\n人\tW-PER\n", ["中/B-LOC 国/E-LOC 人/W-PER"], None),
    "small letters": ("Ada\tb-per\nran\to\n", ["Ada/b-per ran/o"], "such as b-per"),
    "letters at the end": (
        "Ada\tPER-B\nLee\tPER-I\nran\tO\n",
        ["Ada/PER-B Lee/PER-I ran/O"],
        "such as PER-B, PER-I",
    ),
    "tags beside classes": ("Ada\tB-PER\nOslo\tLOC\n", ["Ada/B-PER Oslo/LOC"], "such as LOC"),
    "BIOES": ("Ada\tS-PER\nNew\tB-LOC\nYork\tE-LOC\n", ["Ada/S-PER New/B-LOC York/E-LOC"], None),
    "addresses of sources": (
        "http://news.example.org/a\nAda\tB-PER\nran\tO\n\nhttp://news.example.org/b\n\nIvo\tB-PER\n",
        ["Ada/B-PER ran/O", "Ivo/B-PER"],
        None,
    ),
    "labels first": ("B-ACTOR\ttom\nO\tfilms\n", ["tom/B-ACTOR films/O"], "labels from column 1"),
    "GermEval without nested entities": (
        "#\tn-tv.de [2005]\n1\tDer\tO\tO\n2\tIvo\tB-PER\tO\n\n1\tEr\tO\tO\n",
        ["Der/O Ivo/B-PER", "Er/O"],
        "labels from column 3 of 4. Another",
    ),
    "GermEval without entities": (
        "#\tn-tv.de [2005]\n1\tDer\tO\tO\n2\tHut\tO\tO\n",
        ["Der/O Hut/O"],
        "column 3 of 4. All labels at its beginning are O, .* Column 4 has labels, too",
    ),
    "no entities": ("Der ART O\nHut N O\n", ["Der/O Hut/O"], "marks no entities. Another column"),
    "numbers of sentences": (
        "sentence_id\twords\tlabels\n0\tAda\tB-PER\n0\tran\tO\n1\tIvo\tB-PER\n1\tran\tO\n",
        ["Ada/B-PER ran/O", "Ivo/B-PER ran/O"],
        "words from column 2",
    ),
    "numbers of sentences between blank lines": (
        "word sent_id ner\nAda 1 B-PER\n\nIvo 1 B-PER\nran 2 O\n",
        ["Ada/B-PER", "Ivo/B-PER", "ran/O"],
        None,
    ),
    "labels first, all outside": (
        "O\twhat\nO\tfilms\n",
        ["what/O films/O"],
        "labels from column 1",
    ),
    "CoNLL-2003 in German": (
        "-DOCSTART- -X- -X- -X- O\n\nIvo Ivo NE I-NC I-PER\nrennt rennen VVFIN I-VC O\n",
        ["Ivo/I-PER rennt/O"],
        None,
    ),
    "CoNLL-2012, a word in each sentence": (
        "#begin document (x); part 000\nx 0 0 Yes UH (NP*) - - - A * -\n\n"
        "x 0 0 Oslo NNP (NP*) - - - A (GPE) -\n\n#end document\n",
        ["Yes/O", "Oslo/B-GPE"],
        "words from column 4",
    ),
    "JNLPBA": (
        "###MEDLINE:95369245\tO\n\nIL-2\tB-DNA\ngene\tI-DNA\n",
        ["IL-2/B-DNA gene/I-DNA"],
        None,
    ),
    "Weibo": (
        "科0\tO\n技1\tO\n全0\tB-PER.NAM\n方1\tI-PER.NAM\n",
        ["科/O 技/O 全/B-PER.NAM 方/I-PER.NAM"],
        "a character with a number",
    ),
    "words that end in digits": ("A1\tO\nB2\tB-X\nC3\tO\n", ["A1/O B2/B-X C3/O"], None),
    "places before words": (
        "0 3 Ada B-PER\n4 7 ran O\n",
        ["Ada/B-PER ran/O"],
        "words from column 3",
    ),
    "words that are numbers": ("12 B-YEAR\n13 O\n", ["12/B-YEAR 13/O"], None),
    "an unknown header": (
        "Wort\tEtikett\nAda\tB-PER\nran\tO\n",
        ["Ada/B-PER ran/O"],
        "'Wort Etikett' is read as the names",
    ),
    "a word with -DOCSTART- in it": (
        "x-DOCSTART-y O\nAda B-PER\n",
        ["x-DOCSTART-y/O Ada/B-PER"],
        None,
    ),
    "numbers through a document": (
        "1\tAda\tB-PER\n2\tran\tO\n\n3\tIvo\tB-PER\n",
        ["Ada/B-PER ran/O", "Ivo/B-PER"],
        "words from column 2",
    ),
    "parts of speech": ("Ada PROPN\nran VERB\n# SYM\n", ["Ada/PROPN ran/VERB #/SYM"], None),
    "spaces, Windows's ends and no end": (
        "\ufeffAda B-PER  \r\nran O\t\r\n\r\n\r\n10\u00a0000\tO",
        ["Ada/B-PER ran/O", "10\u00a0000/O"],
        None,
    ),
    "comments that look like rows": (
        "# text = O\nAda _ _ B-PER\n# _ _ O\n\n# id = 2\n# _ _ O\n",
        ["Ada/B-PER #/O", "#/O"],
        None,
    ),
}


def read(tmp_path, content, **options):
    path = tmp_path / "file.conll"
    path.write_bytes(content.encode())
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        rows = read_published(path, "conll", **options)
    pairs = zip(rows.x["text"], rows.labels, strict=True)
    results = [" ".join(map("/".join, zip(*pair, strict=True))) for pair in pairs]
    return results, [str(warning.message) for warning in said]


@pytest.mark.parametrize("name", READ)
def test_files_as_they_are_found(tmp_path, name):
    content, expected, warned = READ[name]
    actual, said = read(tmp_path, content)
    assert actual == expected
    assert len(said) == bool(warned) and all(re.search(warned, message) for message in said)


PARSED = "1\tThe\tthe\tDET\tDT\tPron=Art\t2\tdet\t_\t_\n2\tdog\tdog\tNOUN\tNN\t_\t0\troot\t_\t_\n"
ROLES = (
    "1\tAda\tada\tada\tNNP\tNNP\t_\t_\t2\t2\tSBJ\tSBJ\t_\t_\tA0\n"
    "2\truns\trun\trun\tVBZ\tVBZ\t_\t_\t0\t0\tROOT\tROOT\tY\trun.01\t_\n\n"
    "1\tYes\tyes\tyes\tUH\tUH\t_\t_\t0\t0\tROOT\tROOT\t_\t_\n2\t.\t.\t.\t.\t.\t_\t_\t1\t1\tP\tP\t_\t_\n"
)


@pytest.mark.parametrize(
    "content, labels, expected",
    [
        (READ["GermEval"][0], 4, ["Der/O Ivo/O", "Uni/O Oslo/B-LOC"]),
        (PARSED, "UPOS", ["The/DET dog/NOUN"]),
        (PARSED, "5", ["The/DT dog/NN"]),
        (READ["CoNLL-2003 with a header"][0], "chunk", ["EU/B-NP runs/B-VP"]),
        (READ["CoNLL-U with entities in MISC"][0], "SpaceAfter", ["vamos/O nos/O Oslo/No"]),
        (ROLES, 5, ["Ada/NNP runs/VBZ", "Yes/UH ./."]),
        ("Ada\tCase=Nom\nran\tTense=Past\n", "2", ["Ada/Case=Nom ran/Tense=Past"]),
    ],
)
def test_a_column_of_labels_is_chosen(tmp_path, content, labels, expected):
    assert read(tmp_path, content, labels=labels) == (expected, [])
    path = str(tmp_path / "file.conll")
    rows = read_examples(path, "token-classifier", labels=labels)
    assert [tag for tags in rows.labels for tag in tags] == re.findall(
        r"/(\S+)", " ".join(expected)
    )


@pytest.mark.parametrize(
    "content, message",
    [
        (PARSED, "none of its 10 columns looks like labels .* such as 'upos'"),
        (ROLES, "none of its 14 columns looks like labels of words"),
        (
            "Ada\tdomain=en\nran\tdomain=de\n",
            "line 1: 'domain=en' is not the name .* column 2 of 2",
        ),
        ("Ada\tO\nran\thttp://x.org/y\n", "line 2: 'http://x.org/y' is not the name of a class"),
        (
            "Ada B-PER\nNew York B-LOC\nx O\n",
            "line 2: 'New York B-LOC' is not a word and its label",
        ),
        ("Ada B-PER\nx\n", "line 2: 'x' is not a word and its label in 2 columns"),
        ("Ada\tB-PER\n\tO\n", r"line 2: '\\tO' is not a word"),
        ("경\tO\n \tO\n", r"line 2: ' \\tO' is not a word and its label"),
        ("Ada\nran\n", "line 1: 'Ada' is not a word and its label"),
        ("x\tV O\nAda\tN B-PER\n", "line 2: 'N B-PER' is not the name of a class"),
        ("Ada/B-PER ran/O\n", "line 1: 'ran/O' is not the name of a class"),
        ("Ada B-PER\rran O\r", "line 1: a carriage return within the line"),
        ("token\tlabel\n", "is empty"),
        ("x 0 0 Ada - - -\n", "none of its 7 columns looks like labels"),
        ("Ada,B-PER\nran,O\n", "line 1: 'Ada,B-PER' is not a word and its label"),
    ],
)
def test_what_is_no_file_of_words_is_refused(tmp_path, content, message):
    with pytest.raises(ValueError, match=message):
        read(tmp_path, content)


def test_a_choice_that_is_not_there(tmp_path):
    with pytest.raises(
        ValueError, match=r"no column 'ner' of labels: .* 1 to 10, or one of id, form"
    ):
        read(tmp_path, PARSED, labels="ner")
    (tmp_path / "a").write_text("Ada N NP O\n")
    with pytest.raises(ValueError, match="labels=2: leave it out"):
        read_published(tmp_path / "a", "conll2003", labels=2)


def test_tags_of_known_sets(tmp_path):
    """Comments and headers are skipped there, too; labels without prefixes stay as they are."""
    path = tmp_path / "file"
    path.write_text(
        "word pos chunk ner\n# id = 1\nEU NNP I-NP I-ORG\n# # I-NP O\n\nIvo N I-NP I-PER\n"
    )
    assert read_published(path, "conll2003").labels == [["B-ORG", "O"], ["B-PER"]]
    for tags in (["ORG", "O"], ["B", "I"], ["B-ORG", "X.ORG"]):
        path.write_text("EU NNP I-NP {}\nruns V I-VP {}\n".format(*tags))
        assert read_published(path, "conll2003").labels == [tags]
    path.write_text("EU NNP I-NP U-ORG\nruns V I-VP O\nNew N I-NP B-LOC\nYork N I-NP L-LOC\n")
    assert read_published(path, "conll2003").labels == [["B-ORG", "O", "B-LOC", "I-LOC"]]
