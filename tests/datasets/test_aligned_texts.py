"""A text for a text: WMT's lines, segments and documents, stories of CNN and the Daily Mail."""

import gzip

import pytest

from keras_lm.data import read_published

SOURCE = """<srcset setid="own" srclang="any">
<doc sysid="ref" docid="a.1" genre="news"><hl><seg id="1">Cats &amp; dogs</seg></hl>
<p>
<seg id="2"> It
rained. </seg>
</p></doc>
<DOC docid='b.2'><seg id="1">Snow > rain & hail</seg></DOC>
</srcset>
"""
REFERENCE = """<?xml version="1.0"?>
<refset setid="own" trglang="de">
<doc docid="a.1"><seg id="1">Katzen und Hunde</seg><seg id="2">Es regnete.</seg></doc>
<doc docid="b.2"><seg id="1">Schnee</seg></doc>
</refset>
"""
BOTH = """<?xml version='1.0' encoding='utf-8'?>
<dataset id="own"><doc origlang="en" id="a.1">
<src lang="en"><p><seg id="1">Cats</seg><seg id="2">Rain</seg></p></src>
<ref lang="de" translator="A"><p><seg id="1">Katzen</seg><seg id="2">Regen</seg></p></ref>
<ref lang="de" translator="B"><p><seg id="1">Kater</seg></p></ref>
<hyp system="s"><p><seg id="1">Hunde</seg></p></hyp></doc>
<doc id="b.2"><src lang="en"><p><seg id="1">Snow</seg></p></src></doc></dataset>
"""
STORY = """(CNN)  It rained for a week

The river rose.

@highlight

River rises

@highlight

Cats stay "dry"
"""
IDS = ["a.1-1", "a.1-2", "b.2-1"]


@pytest.fixture
def write(tmp_path):
    def write(name, content):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        content = content.encode()
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return path

    return write


def rows_of(results):
    return results.x, results.labels, results.ids


def test_lines(write):
    source = write("train.en.gz", 'It "rained, a\tlot.\r\n\nSnow\n')
    rows = read_published(source, "wmt", write("train.de", "Es regnete.\n\nSchnee"))
    text = ['It "rained, a\tlot.', "", "Snow"]
    assert rows_of(rows) == ({"text": text}, ["Es regnete.", "", "Schnee"], None)
    assert rows_of(read_published(source, "wmt")) == ({"text": text}, None, None)


def test_segments(write):
    source, reference = write("src.en.sgm", SOURCE), write("ref.de.sgm.gz", REFERENCE)
    text = ["Cats & dogs", "It rained.", "Snow > rain & hail"]
    labels = ["Katzen und Hunde", "Es regnete.", "Schnee"]
    assert rows_of(read_published(source, "wmt", reference)) == ({"text": text}, labels, IDS)
    assert rows_of(read_published(source, "wmt")) == ({"text": text}, None, IDS)


def test_documents_have_their_first_reference(write):
    rows = read_published(write("own.en-de.xml", BOTH), "wmt")
    assert rows_of(rows) == ({"text": ["Cats", "Rain"]}, ["Katzen", "Regen"], IDS[:2])
    assert rows.left_out == 1  # without a reference
    without = BOTH.replace("<ref", "<hyp").replace("</ref", "</hyp")
    rows = read_published(write("own.en-de.xml", without), "wmt")
    assert rows_of(rows) == ({"text": ["Cats", "Rain", "Snow"]}, None, IDS)


def test_stories(write):
    write("stories/0a.story", STORY)
    write(
        "stories/0b.story.gz", STORY.replace("It rained for a week\n\n", "").replace("\n", "\r\n")
    )
    folder = write("stories/0c.story", "\n@highlight\n\nNothing above\n").parent
    rows = read_published(folder, "cnn-dailymail")
    assert rows.x == {
        "text": ["(CNN)  It rained for a week. The river rose.", "(CNN)  The river rose."]
    }
    assert rows.labels == ['River rises. Cats stay "dry"'] * 2
    assert (rows.ids, rows.left_out) == (["0a", "0b"], 1)  # the last has no article


def test_lines_of_articles_and_summaries(write):
    source = write("train.txt.src", "it rained . the river rose .\nsnow\n")
    target = "<t> river rises . </t> <t> cats stay dry . </t>\n<t> snow . </t>\n"
    rows = read_published(source, "cnn-dailymail", write("train.txt.tgt.tagged", target))
    assert rows.x == {"text": ["it rained . the river rose .", "snow"]}
    assert rows.labels == ["river rises . cats stay dry .", "snow ."]


@pytest.mark.parametrize(
    "content, targets, message",
    [
        ("a\nb\nc\n", "x\n", "source.en has 3 lines, but .*target.de has 1"),
        ("a\n", "x\ny\n", "target.de has 2 lines, but .*source.en has 1"),
        (SOURCE, REFERENCE.replace("b.2", "c.3"), "segment b.2-1 where .*target.de has c.3-1"),
        (SOURCE, REFERENCE[:150], "target.de: cut off, the last tag does not close refset"),
        (SOURCE.replace("Cats", "<seg id='3'>"), None, "line 2: \"<seg id='3'>\", but a segment"),
        (SOURCE.replace("dogs</seg>", "dogs"), None, "line 4: '<seg id=\"2\">', but a segment"),
        (BOTH.replace('<src lang="en"><p><seg id="1">Snow', "<ref><p><seg>x"), None, "no source"),
        ("", None, "source.en is empty: it has no rows"),
    ],
)
def test_damage_of_wmt(write, content, targets, message):
    targets = targets and write("target.de", targets)
    with pytest.raises(ValueError, match=message):
        read_published(write("source.en", content), "wmt", targets)


def test_damage_of_other_sets(write):
    for cut in (STORY[: STORY.index("@")], STORY[: STORY.index("Cats")]):
        with pytest.raises(ValueError, match=r"a.story: cut off, there is no @highlight"):
            read_published(write("a.story", cut), "cnn-dailymail")
    with pytest.raises(ValueError, match=r"targets=.*: leave it out, as a file of sst2"):
        read_published(write("a", "sentence\tlabel\nx\t1\n"), "sst2", write("b", "1\n"))
    packed = write("cut.gz", SOURCE * 20)
    packed.write_bytes(packed.read_bytes()[:-20])
    with pytest.raises(ValueError, match=r"cut.gz cannot be unpacked"):
        read_published(packed, "wmt")
