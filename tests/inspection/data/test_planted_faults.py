"""Every fault that is planted into data is found under its name, and its rows are named."""

import json
import random

import pytest

from inspection.data.healthy_sets import ENGLISH, FRENCH, words, write_csv, write_jsonl
from inspection.data.tiny_tokenizers import letters
from stayfinite.inspection.data.inspecting import inspect_data

LETTERS = "abcdefghijklmnopqrstuvwxyz ."


def pairs(count=200, seed=1):
    rng = random.Random(seed)
    return [[words(ENGLISH, 6, 20, rng), words(FRENCH, 6, 20, rng)] for _ in range(count)]


def found(*paths, **options):
    """Findings by cause, with all they say in one string."""
    inspection = inspect_data([str(path) for path in paths], **options)
    json.dumps(inspection.to_json(), allow_nan=False)
    return {finding.cause: f"{finding.where} {finding.evidence}" for finding in inspection.findings}


def test_an_empty_target_is_named_by_its_line(tmp_path):
    rows = pairs()
    rows[5][1], rows[9][0], rows[11][1] = "", "  ", "nan"
    says = found(write_csv(tmp_path / "p.csv", ["source", "target"], rows))["bad-data-row"]
    assert "p.csv:7, 13: target is missing or empty" in says
    assert "p.csv:11: source is missing or empty" in says


def test_numbers_that_are_not_finite_are_named(tmp_path):
    rng = random.Random(2)
    rows = [[rng.random(), rng.gauss(0, 1), rng.random()] for _ in range(100)]
    rows[3][0], rows[4][1], rows[7][1], rows[8][2] = "nan", "-inf", "", "1e999"
    says = found(write_csv(tmp_path / "t.csv", ["age", "height", "y"], rows))["bad-data-row"]
    assert "t.csv:5: age is NaN or inf" in says
    assert "t.csv:6: height is NaN or inf" in says
    assert "t.csv:9: height is missing" in says
    assert "t.csv:10: y is NaN or inf" in says


def test_a_word_among_numbers_is_named(tmp_path):
    rows = [[n / 7, n % 3] for n in range(100)]
    rows[60][0] = "12,5"
    assert (
        "t.csv:62: weight_kg is not a number"
        in found(write_csv(tmp_path / "t.csv", ["weight_kg", "label"], rows))["bad-data-row"]
    )


def test_broken_lines_of_json_are_named_and_the_others_read(tmp_path):
    path = tmp_path / "p.jsonl"
    write_jsonl(path, [{"source": a, "target": b} for a, b in pairs()])
    lines = path.read_text().splitlines()
    lines[3], lines[8] = lines[3][:20], "[1, 2]"
    path.write_text("\n".join(lines))
    says = found(path)["bad-data-row"]
    assert "p.jsonl:4 not JSON" in says
    assert "p.jsonl:9 expected an object" in says
    assert inspect_data([str(path)]).banner[0][1].endswith("198 rows")


def test_a_ragged_row_is_named(tmp_path):
    path = tmp_path / "p.csv"
    write_csv(path, ["id", "source", "target"], [[n, *row] for n, row in enumerate(pairs())])
    lines = path.read_text().splitlines()
    lines[20] = "19,only two"
    path.write_text("\n".join(lines))
    assert "p.csv:21 2 fields, but the header has 3" in found(path)["bad-data-row"]


def test_texts_that_are_not_aligned_are_told(tmp_path):
    left, right = zip(*pairs(), strict=True)
    (tmp_path / "t.src").write_text("\n".join(left))
    (tmp_path / "t.tgt").write_text("\n".join(right[:-3]))
    assert (
        "t.src:198 t.tgt ends here, the other file has 3 more lines"
        in found(tmp_path / "t.src", tmp_path / "t.tgt")["bad-data-row"]
    )


def test_data_without_rows_is_an_error(tmp_path):
    (tmp_path / "empty.csv").write_text("source,target\n")
    assert "empty-batch" in found(tmp_path / "empty.csv")


def test_many_copies_are_found(tmp_path):
    rows = pairs()
    rows[100:140] = rows[:40]
    assert "p.csv:102 as p.csv:2" in found(write_csv(tmp_path / "p.csv", ["source", "target"], rows))["duplicate-rows"]


def test_validation_rows_from_the_training_data_are_found_whatever_their_form(tmp_path):
    rows = pairs()
    train = write_csv(tmp_path / "train.csv", ["source", "target"], rows)
    leaked = [[rows[n][0].upper().replace(" ", "  "), rows[n][1] + "!"] for n in (4, 5)]
    val = write_jsonl(tmp_path / "val.jsonl", [{"source": a, "target": b} for a, b in [*pairs(30, seed=9), *leaked]])
    says = found(train, val=[val])["train-val-overlap"]
    assert "val.jsonl:31 as train.csv:6, val.jsonl:32 as train.csv:7" in says


@pytest.mark.parametrize(("column", "option"), [("uuid", None), ("document_id", None), ("speaker", "speaker")])
def test_validation_rows_with_an_id_of_the_training_data_are_found(tmp_path, column, option):
    rng = random.Random(3)
    names = [f"{rng.getrandbits(40):010x}" for _ in range(230)]
    train = write_csv(
        tmp_path / "a.csv", [column, "en", "fr"], [[i, *row] for i, row in zip(names, pairs(), strict=False)]
    )
    ids = [names[7], *names[200:229]]
    val = write_csv(
        tmp_path / "b.csv", [column, "en", "fr"], [[i, *row] for i, row in zip(ids, pairs(30, seed=5), strict=True)]
    )
    assert "b.csv:2 as a.csv:9" in found(train, val=[val], group=option)["train-val-overlap"]


def numbered(start, count, text):
    return [[n, text(n), f"t {n}"] for n in range(start, start + count)]


def test_short_rows_copied_with_their_ids_are_found_although_the_ids_look_like_row_numbers(tmp_path):
    rows = numbered(0, 500, lambda n: f"source sentence number {n} hello")
    train = write_csv(tmp_path / "tr.csv", ["id", "source", "target"], [*rows, *rows[:50]])
    held = [*rows[:40], *numbered(600, 60, lambda n: f"new sentence {n}")]
    says = found(train, val=[write_csv(tmp_path / "va.csv", ["id", "source", "target"], held)])["train-val-overlap"]
    assert "40.0% of the validation rows are in the training set" in says
    assert "40.0% of the validation rows share an id with the training set" in says
    assert "va.csv:2 as tr.csv:2" in says


@pytest.mark.parametrize("answers", [("yes", "no"), tuple(LETTERS)])
def test_short_answers_under_ids_that_restart_in_each_file_coincide_by_chance(answers, tmp_path):
    rng = random.Random(4)
    names = ["id", "source", "target"]
    train, held = ([[n, f"q {rng.choice(answers)}", rng.choice(answers)] for n in range(count)] for count in (400, 80))
    files = write_csv(tmp_path / "tr.csv", names, train), write_csv(tmp_path / "va.csv", names, held)
    assert "train-val-overlap" not in found(files[0], val=[files[1]])


def test_a_file_given_as_both_splits_overlaps_whole(tmp_path):
    path = write_csv(tmp_path / "tr.csv", ["source", "target"], [["a b", "c"], ["d e", "f"]] * 20)
    assert "100.0% of the validation rows" in found(path, val=[path])["train-val-overlap"]


@pytest.mark.parametrize(
    ("damage", "kind"),
    [
        (lambda text: (text + " café").encode().decode("cp1252"), "doubly decoded"),
        (lambda text: text + " it\u2019s".encode().decode("cp1252"), "doubly decoded"),
        (lambda text: text + " слово".encode().decode("latin-1"), "doubly decoded"),
        (lambda text: text + " 你好".encode().decode("cp1252", "replace"), "doubly decoded"),
        (lambda text: text + " \ufffd", "replacement"),
        (lambda text: text + "\x00", "control"),
        (lambda text: text + "\x92s", "control"),
    ],
    ids=["accents", "quotes", "cyrillic", "chinese", "replaced", "nul", "c1"],
)
def test_damaged_text_is_found_and_named(tmp_path, damage, kind):
    rows = pairs(100)
    rows[30][0] = damage("so")
    says = found(write_csv(tmp_path / "p.csv", ["source", "target"], rows))["corrupt-encoding"]
    assert "p.csv:32" in says
    assert kind in says


def test_bytes_that_are_not_utf8_are_named(tmp_path):
    path = tmp_path / "p.csv"
    write_csv(path, ["source", "target"], pairs(100))
    lines = path.read_bytes().splitlines()
    lines[50] = b"caf\xe9 au lait and so on," + lines[50].split(b",")[1]
    path.write_bytes(b"\n".join(lines))
    assert "p.csv:51" in found(path)["corrupt-encoding"]


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "utf-16-le"])
def test_a_file_in_another_encoding_is_read_and_told(tmp_path, encoding):
    rows = [[words(ENGLISH, 5, 9, random.Random(n)), f"été {n} où ça déjà"] for n in range(80)]
    path = write_csv(tmp_path / "p.csv", ["source", "target"], rows, encoding=encoding)
    read = "cp1252" if encoding == "latin-1" else encoding
    assert f"read as {read}" in found(path)["corrupt-encoding"]
    assert inspect_data([path]).banner[0][1].endswith("80 rows")


def test_characters_that_the_tokenizer_does_not_know_are_named(tmp_path):
    tokenizer = letters(tmp_path / "model", LETTERS)
    says = found(write_csv(tmp_path / "p.csv", ["source", "target"], pairs()), tokenizer=tokenizer)[
        "tokenizer-mismatch"
    ]
    assert "unknown token" in says
    assert "é" in says


def test_rows_that_a_limit_cuts_are_counted_in_the_tokenizers_unit(tmp_path):
    rows = [["ab cd", "é" * (300 if n % 4 == 0 else 10)] for n in range(100)]
    path = write_csv(tmp_path / "p.csv", ["source", "target"], [[f"{a} {n}", b] for n, (a, b) in enumerate(rows)])
    assert "truncation" not in found(path, tokenizer=letters(tmp_path / "m", LETTERS + "é0123456789"), max_length=301)
    assert "p.csv:2, 6, 10" in found(path, tokenizer="bytes", max_length=301)["truncation"]


def test_a_limit_without_a_tokenizer_is_judged_by_words_alone(tmp_path):
    rows = [[words(ENGLISH, 300, 310, random.Random(n)), "x y z w"] for n in range(40)]
    path = write_csv(tmp_path / "p.csv", ["source", "target"], rows)
    assert "truncation" in found(path, max_length=256)
    assert "truncation" not in found(path, max_length=400)


def test_prompts_that_alone_fill_the_limit_are_named(tmp_path):
    rows = [{"prompt": "a " * (400 if n in (3, 50) else 20) + str(n), "completion": "yes it is so"} for n in range(100)]
    tokenizer = letters(tmp_path / "model", LETTERS + "0123456789")
    says = found(write_jsonl(tmp_path / "p.jsonl", rows), tokenizer=tokenizer, max_length=256)["all-labels-masked"]
    assert "p.jsonl:4, 51" in says


def test_conversations_without_an_answer_are_named(tmp_path):
    rows = [
        {"conversations": [{"from": "human", "value": f"say {n}"}, {"from": "gpt", "value": f"well {n} it is"}]}
        for n in range(60)
    ]
    rows[10]["conversations"].pop()
    rows[20]["conversations"][1]["value"] = ""
    assert "p.jsonl:11, 21" in found(write_jsonl(tmp_path / "p.jsonl", rows))["all-labels-masked"]


@pytest.mark.parametrize(("wrong", "told"), [(64, "64"), (-1, "-1"), (-100, "-100")])
def test_ids_that_the_embedding_has_no_row_for_are_named(tmp_path, wrong, told):
    rows = [{"input_ids": [n % 64, 5, 6], "labels": [-100, 5, 6]} for n in range(40)]
    rows[17]["input_ids"][1] = wrong
    model = letters(tmp_path / "model", LETTERS, vocab_size=64)
    says = found(write_jsonl(tmp_path / "p.jsonl", rows), tokenizer=model)["token-id-out-of-range"]
    assert "p.jsonl:18" in says
    assert told in says


def test_added_tokens_that_the_model_has_no_row_for_are_found_from_text(tmp_path):
    model = letters(tmp_path / "model", LETTERS + "é", vocab_size=30)
    rows = [[f"a b c {words(['lait', 'thé', 'eau'], 4, 9, random.Random(n))}"] for n in range(50)]
    assert "token-id-out-of-range" in found(write_csv(tmp_path / "p.csv", ["text"], rows), tokenizer=model)


def test_labels_that_are_all_masked_are_an_error(tmp_path):
    rows = [{"input_ids": [n % 64, 5, 6], "labels": [-100] * 3} for n in range(40)]
    assert "no supervised label" in found(write_jsonl(tmp_path / "p.jsonl", rows))["all-labels-masked"]


def test_a_limit_beyond_the_models_positions_is_found(tmp_path):
    model = letters(tmp_path / "model", LETTERS, vocab_size=64, max_position_embeddings=128)
    rows = [["word " * 60 + words(ENGLISH, 5, 9, random.Random(n)), n % 2] for n in range(50)]
    path = write_csv(tmp_path / "p.csv", ["text", "label"], rows)
    assert "position-out-of-range" in found(path, tokenizer=model, max_length=512)
    assert "position-out-of-range" not in found(path, tokenizer=model, max_length=128)


def test_a_class_that_rules_is_found(tmp_path):
    rows = [[words(ENGLISH, 5, 9, random.Random(n)), "spam" if n % 30 == 0 else "ham"] for n in range(300)]
    assert "label = ham" in found(write_csv(tmp_path / "p.csv", ["text", "label"], rows))["label-imbalance"]


def test_a_feature_that_never_changes_is_named(tmp_path):
    rows = [[random.Random(n).random(), 0.0, n % 2] for n in range(60)]
    assert (
        "humidity"
        in found(write_csv(tmp_path / "t.csv", ["temperature", "humidity", "label"], rows))["constant-feature"]
    )


def test_splits_of_which_only_one_was_normalised_are_told_apart(tmp_path):
    rows = [
        [f"a-na u₂-ter-ma ša₂ {words(ENGLISH, 3, 9, random.Random(n))}", words(ENGLISH, 4, 9, random.Random(-n))]
        for n in range(300)
    ]
    plain = [[a.replace("₂", "2"), b] for a, b in rows[:250]]
    val = write_csv(tmp_path / "val.csv", ["source", "target"], rows[250:])
    says = found(write_csv(tmp_path / "train.csv", ["source", "target"], plain), val=[val])
    assert "100% of the validation rows hold characters no training row has: ₂" in says["splits-written-differently"]
    alike = write_csv(tmp_path / "alike.csv", ["source", "target"], rows[:250])
    assert "splits-written-differently" not in found(alike, val=[val])


def test_a_gap_in_a_table_with_names_is_found(tmp_path):
    rows = [[n, n % 2, f"Mr. {words(ENGLISH, 2, 4, random.Random(n))}", n / 3, n * 1.7] for n in range(100)]
    rows[40][3] = ""
    header = ["PassengerId", "Survived", "Name", "Age", "Fare"]
    assert "t.csv:42: Age is missing" in found(write_csv(tmp_path / "t.csv", header, rows))["bad-data-row"]


def test_a_leaked_text_is_found_under_another_label(tmp_path):
    texts = [words(ENGLISH, 8, 12, random.Random(n)) for n in range(130)]
    train = write_csv(tmp_path / "train.csv", ["text", "label"], [[text, n % 2] for n, text in enumerate(texts[:100])])
    val = write_csv(tmp_path / "val.csv", ["text", "label"], [[text, n % 2] for n, text in enumerate(texts[97:])])
    assert "val.csv:2 as train.csv:99" in found(train, val=[val])["train-val-overlap"]


def test_an_empty_rejected_answer_is_named(tmp_path):
    rng = random.Random(4)
    rows = [{name: words(ENGLISH, 5, 9, rng) for name in ("prompt", "chosen", "rejected")} for _ in range(40)]
    rows[11]["rejected"] = ""
    assert "p.jsonl:12: rejected is missing" in found(write_jsonl(tmp_path / "p.jsonl", rows))["bad-data-row"]
