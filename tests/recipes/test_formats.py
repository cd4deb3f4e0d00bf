"""The formats that people have are read by every recipe and by `check --data` alike, and each is named."""

import gzip
import json
import random
import zipfile

import pytest

from quick_ones import quick_ones
from stayfinite.cli.check import run as check
from stayfinite.errors import MissingExtra, UsageError
from stayfinite.readers.data.opening import open_data
from stayfinite.readers.data.packed import FREE
from stayfinite.recipes.chat.questions import Columns as QuestionColumns
from stayfinite.recipes.chat.questions import read_questions
from stayfinite.recipes.language.texts import read_texts
from stayfinite.recipes.seq2seq.pairs import read_pairs
from stayfinite.recipes.seq2seq.tables import Columns as PairColumns

RNG = random.Random(0)
PAIRS = [
    (f"How many g is {n} kg, asked {RNG.random():.6f}?", f"{n * 1000} grams and {RNG.random():.6f}") for n in range(40)
]


def lines(rows):
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def messages(question, answer):
    return {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]}


def sharegpt(question, answer):
    return {"conversations": [{"from": "human", "value": question}, {"from": "gpt", "value": answer}]}


def alpaca(question, answer):
    first, _, rest = question.partition(", ")
    return {"instruction": first, "input": rest, "output": answer}


def preference(question, answer):
    return {"prompt": question, "chosen": answer, "rejected": "no idea at all"}


def translation(question, answer):
    return {"id": "x", "translation": {"en": question, "de": answer}}


def tmx(rows, head=""):
    units = "".join(
        f'<tu><tuv xml:lang="en"><seg>{one}</seg></tuv>'
        f'<tuv xml:lang="de"><seg>{two}<ph>&lt;b&gt;</ph></seg></tuv></tu>\n'
        for one, two in rows
    )
    return f'<?xml version="1.0"?>\n{head}<tmx version="1.4"><header srclang="en"/><body>\n{units}</body></tmx>\n'


def opus(path, rows, names=("c.de-en.en", "c.de-en.de")):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("README", "words about the corpus")
        archive.writestr("c.de-en.xml", "<links/>")
        for side, name in enumerate(names):
            archive.writestr(name, "".join(row[side] + "\n" for row in rows))


def zst(text):
    return pytest.importorskip("zstandard").ZstdCompressor().compress(text.encode())


FILES = {
    "pairs.json": (lambda p: p.write_text(json.dumps(PAIRS)), "JSON, list of pairs"),
    "pairs.jsonl": (lambda p: p.write_text(lines(PAIRS)), "JSON lines, list of pairs"),
    "chat.jsonl": (lambda p: p.write_text(lines(messages(*row) for row in PAIRS)), "JSON lines, chat messages"),
    "share.json": (
        lambda p: p.write_text(json.dumps([sharegpt(*row) for row in PAIRS])),
        "JSON, ShareGPT conversations",
    ),
    "alpaca.json": (lambda p: p.write_text(json.dumps([alpaca(*row) for row in PAIRS])), "JSON, Alpaca rows"),
    "dpo.jsonl": (lambda p: p.write_text(lines(preference(*row) for row in PAIRS)), "JSON lines, preference rows"),
    "opus.jsonl.gz": (
        lambda p: p.write_bytes(gzip.compress(lines(translation(*row) for row in PAIRS).encode())),
        "JSON lines, translations by language",
    ),
    "chat.jsonl.zst": (
        lambda p: p.write_bytes(zst(lines(messages(*row) for row in PAIRS))),
        "JSON lines, chat messages",
    ),
    "memory.tmx": (lambda p: p.write_text(tmx(PAIRS)), "TMX, translations by language"),
    "memory.tmx.gz": (lambda p: p.write_bytes(gzip.compress(tmx(PAIRS).encode())), "TMX, translations by language"),
}  # fmt: skip


@pytest.fixture(params=FILES)
def written(request, tmp_path):
    write, told = FILES[request.param]
    write(tmp_path / request.param)
    return tmp_path / request.param, told


def expected(path):
    """What the two sides of a row are; Alpaca puts the input below the instruction."""
    if "alpaca" in path.name:
        return [(question.replace(", ", "\n", 1), answer) for question, answer in PAIRS]
    return PAIRS


def test_translate_reads_it_and_says_what_it_is(written):
    path, told = written
    said = []
    pairs = read_pairs([str(path)], PairColumns(), said.append)
    assert [(pair.source, pair.target) for pair in pairs] == expected(path)
    assert said[0].startswith(f"{path.name}: {told}, 40 rows: source = ")


def test_sft_reads_it_and_says_what_it_is(written):
    path, told = written
    said = []
    found = read_questions([str(path)], QuestionColumns(), said.append)
    assert [(each.text, each.answer) for each in found] == expected(path)
    assert said == [f"{path.name}: {told}, 40 rows"]


def test_check_shows_what_it_is_and_finds_no_fault(written, capsys):
    path, told = written
    code = check(["--data", str(path)])
    said = capsys.readouterr().out
    assert f"{path.name} ({told}), 40 rows" in " ".join(said.split())
    assert code == 0, said


def test_the_founding_reports_file_is_read(tmp_path):
    (tmp_path / "q.json").write_text('[["How many g is 2 kg?", 2000.0], ["How many m is 1.5 km?", 1500]]')
    found = read_questions([str(tmp_path / "q.json")], QuestionColumns())
    assert [(each.text, each.answer) for each in found] == [
        ("How many g is 2 kg?", "2000"),
        ("How many m is 1.5 km?", "1500"),
    ]


def test_two_plain_files_and_an_opus_zip_are_the_same_pairs(tmp_path):
    (tmp_path / "t.en").write_text("".join(one + "\n" for one, _ in PAIRS))
    (tmp_path / "t.de").write_text("".join(two + "\n" for _, two in PAIRS))
    opus(tmp_path / "c.zip", PAIRS)
    plain = read_pairs([str(tmp_path / "t.en"), str(tmp_path / "t.de")], PairColumns())
    said = []
    packed = read_pairs([str(tmp_path / "c.zip")], PairColumns(source="en", target="de"), said.append)
    assert [(pair.source, pair.target) for pair in plain] == PAIRS
    assert packed == plain
    assert "zip of Moses, two aligned texts" in said[0]


def test_a_chat_is_one_text_for_mt5_and_a_longer_one_keeps_its_speakers_for_sft(tmp_path):
    turns = [
        ("system", "Be brief."),
        ("user", "And 3 kg?"),
        ("assistant", "3000"),
        ("user", "And 4?"),
        ("assistant", "4000"),
    ]
    row = {"messages": [{"role": role, "content": text} for role, text in turns]}
    (tmp_path / "c.jsonl").write_text(lines([row]))
    assert read_texts([str(tmp_path / "c.jsonl")]).texts == ["Be brief. And 3 kg? 3000 And 4? 4000"]
    (found,) = read_questions([str(tmp_path / "c.jsonl")], QuestionColumns())
    assert (found.text, found.answer) == ("Be brief.\nUser: And 3 kg?\nAssistant: 3000\nUser: And 4?", "4000")


BAD = {
    "three.json": ('[["a", 1], ["b", 2, 3]]', r"three.json:2: expected a list of 2 values .*not a list of 3"),
    "mixed.jsonl": ('{"question": "a", "answer": 1}\n["b", 2]\n', r"mixed.jsonl:2: expected an object"),
    "number.json": ("[3, 4]", r"number.json:1: expected an object with fields, or a list .*not 3"),
    "silent.jsonl": (
        lines([messages("a", "b"), {"messages": [{"role": "user", "content": "x"}]}]),
        r"silent.jsonl:2: expected messages from a user and an assistant; an answer",
    ),
    "deep.json": ("[" * 100_000, r"deep.json:1: invalid JSON"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_row_that_does_not_fit_is_named_with_what_was_expected(tmp_path, name):
    text, message = BAD[name]
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match=message):
        read_questions([str(tmp_path / name)], QuestionColumns())


LAUGHS = '<!DOCTYPE tmx [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;">]>\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (tmx(PAIRS, LAUGHS).replace("How", "&b;"), "m.tmx:2: custom entity"),
        (tmx(PAIRS, '<!DOCTYPE tmx [<!ENTITY f SYSTEM "file:///etc/passwd">]>\n'), "custom entity"),
        (tmx(PAIRS)[:2000], "m.tmx:.*the file is truncated"),
        (tmx(PAIRS).replace('xml:lang="de"', 'xml:lang="en"', 1), "m.tmx:3: expected a <tuv> in two languages"),
        ("<html><body/></html>", "expected <tmx>, not <html>"),
        (tmx([]).replace("<body>", "<body>" + "<tu>" * 80), "elements nested 64 deep"),
    ],
)
def test_a_tmx_that_is_cut_or_hostile_is_a_clear_error(tmp_path, text, message):
    (tmp_path / "m.tmx").write_text(text)
    with pytest.raises(UsageError, match=message):
        read_pairs([str(tmp_path / "m.tmx")], PairColumns())


def test_a_doctype_without_entities_is_harmless(tmp_path):
    (tmp_path / "m.tmx").write_text(tmx(PAIRS, '<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n'))
    assert len(read_pairs([str(tmp_path / "m.tmx")], PairColumns())) == 40


@pytest.mark.parametrize("kind", ["gz", "zst", "zip"])
def test_a_compressed_file_that_is_cut_says_so(tmp_path, kind):
    rng = random.Random(1)
    text = lines({"question": f"{rng.random()}", "answer": f"{rng.random()}"} for _ in range(2000))
    path = tmp_path / f"a.jsonl.{kind}"
    if kind == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("a.jsonl", text)
        whole = path.read_bytes()
    else:
        whole = gzip.compress(text.encode()) if kind == "gz" else zst(text)
    path.write_bytes(whole)
    assert len(read_questions([str(path)], QuestionColumns())) == 2000
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UsageError, match=r"cannot (unpack|read|open)|not a valid"):
        read_questions([str(path)], QuestionColumns())


@pytest.mark.parametrize("kind", quick_ones(["gz", "zst", "zip"], "gz"))
def test_a_bomb_is_refused_before_it_fills_the_memory(tmp_path, kind, monkeypatch):
    monkeypatch.setattr("stayfinite.readers.data.packed.FREE", FREE >> 6)
    line = lines([{"question": "a" * 1000, "answer": 1}])
    text = line * (16 * FREE // 64 // len(line))
    path = tmp_path / f"a.jsonl.{kind}"
    if kind == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("a.jsonl", text)
    else:
        path.write_bytes(gzip.compress(text.encode()) if kind == "gz" else zst(text))
    with pytest.raises(UsageError, match="suspicious"):
        read_questions([str(path)], QuestionColumns())


def test_without_zstandard_the_install_line_is_said(tmp_path, monkeypatch):
    (tmp_path / "a.jsonl.zst").write_bytes(zst(lines([messages("a", "b")])))
    monkeypatch.setitem(__import__("sys").modules, "zstandard", None)
    with pytest.raises(MissingExtra, match="zstandard") as caught:
        open_data([tmp_path / "a.jsonl.zst"])
    assert "stayfinite[data]" in str(caught.value.fix)
