"""Data sets as people have them, with nothing wrong: each writes itself into a folder and gives its options."""

import csv
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Words with everything around them that looks like damage and is none.
FRENCH = [
    "le", "la", "café", "où", "garçon", "été", "déjà", "voilà\u00a0»", "«\u00a0naïf", "ÉCOLE", "CAFÉ\u201d", "œuvre",
    "l\u2019homme", "cœur", "…", "—", "noël", "25\u00a0°C",
]  # fmt: skip
GERMAN = [
    "der", "Fluß", "über", "„Öl\u201c", "schön", "Größe", "Bäume", "Straße", "Übung", "für", "Äpfel", "müde", "Käse",
    "5", "Å²", "Ångström",
]  # fmt: skip
PORTUGUESE = [
    "NÃO", "SÃO", "a", "irmã", "MANHÃ…", "coração", "ação", "\u201cMAÇÃ\u201d", "pão", "às", "três", "Ã", "vovô",
    "ÂNGULO", "10º",
]  # fmt: skip
RUSSIAN = ["река", "город", "дом", "и", "мы", "«слово»", "быстро", "шёл", "ночью", "№5", "солнце"]
CHINESE = "我们在学校学习语言模型训练数据很重要今天天气好的人工智能\uff0c。「」"
AKKADIAN = [
    "a-na", "LUGAL", "be-li₂-ia", "ARAD-ka", "{m}-{d}-PA—PAB", "ša₂", "KUR", "aš-šur{KI}", "u₂-ter-ma", "šu-ul-mu",
    "...", "ṣa-ab", "DINGIR.MEŠ", "ḫi-it-ti", "\u02bea",
]  # fmt: skip
ENGLISH = [
    "the", "king", "of", "my", "lord", "to", "your", "servant", "may", "gods", "nabu", "and", "marduk", "bless", "city",
    "land", "river", "house", "gave", "went", "...", "great",
]  # fmt: skip
EMOJI = [
    "so", "good", "😀", "👩\u200d👩\u200d👧", "❤️", "ok", "🇩🇪", "👍🏽", "lol", "™", "…", "\u201cyes\u201d",
    "it\u2019s", "—", "fine", "100%", "😭",
]  # fmt: skip
CODE = [
    "def f{n}(x):\n    return x * {n} + {m}\n",
    "for (int i = 0; i < {n}; i++) {{ sum += a[i] & 0x{m:x}; }}\n",
    "\tif x[{n}] != '\\x00':\n\t\tprint(\"{m}\\t\")\n",
]


def words(of: list[str] | str, least: int, most: int, rng: random.Random) -> str:
    join = "" if isinstance(of, str) else " "
    return join.join(rng.choices(of, k=rng.randint(least, most)))


def write_csv(path: Path, header: list[str], rows: list[list[Any]], **options: Any) -> str:
    with path.open("w", newline="", encoding=options.pop("encoding", "utf-8")) as file:
        writer = csv.writer(file, **options)
        writer.writerow(header)
        writer.writerows(rows)
    return str(path)


def write_jsonl(path: Path, rows: list[Any]) -> str:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def french_pairs(folder: Path, rng: random.Random) -> dict[str, Any]:
    rows = [[n, words(ENGLISH, 4, 20, rng), words(FRENCH, 4, 20, rng)] for n in range(300)]
    train = write_csv(folder / "train.csv", ["id", "en", "fr"], rows[:250])
    # Counted anew in each file, as data frames are written.
    val = write_csv(folder / "val.csv", ["id", "en", "fr"], [[n, *row[1:]] for n, row in enumerate(rows[250:])])
    return {"paths": [train], "val": [val], "max_length": 512, "tokenizer": "bytes"}


def german_nested(folder: Path, rng: random.Random) -> dict[str, Any]:
    rows = [{"translation": {"de": words(GERMAN, 5, 20, rng), "en": words(ENGLISH, 5, 20, rng)}} for _ in range(200)]
    return {"paths": [write_jsonl(folder / "wmt.jsonl", rows)]}


def portuguese_reviews(folder: Path, rng: random.Random) -> dict[str, Any]:
    rows = [[words(PORTUGUESE, 5, 30, rng), rng.choices([0, 1], [7, 3])[0]] for _ in range(300)]
    return {"paths": [write_csv(folder / "reviews.csv", ["text", "label"], rows)]}


def akkadian_aligned(folder: Path, rng: random.Random) -> dict[str, Any]:
    left, right = ([words(of, 2, 25, rng) for _ in range(300)] for of in (AKKADIAN, ENGLISH))
    (folder / "train.tr").write_text("\n".join(left) + "\n", encoding="utf-8")
    (folder / "train.en").write_text("\n".join(right) + "\n", encoding="utf-8")
    return {"paths": [str(folder / "train.tr"), str(folder / "train.en")], "tokenizer": "bytes", "max_length": 400}


def chinese_news(folder: Path, rng: random.Random) -> dict[str, Any]:
    rows = [
        {"content": words(CHINESE, 20, 80, rng), "category": rng.choice(["体育", "财经", "科技"])} for _ in range(200)
    ]
    (folder / "news.json").write_text(json.dumps(rows, ensure_ascii=False, indent=1), encoding="utf-8")
    return {"paths": [str(folder / "news.json")]}


def emoji_tweets(folder: Path, rng: random.Random) -> dict[str, Any]:
    rows = [[f"u{n}", words(EMOJI, 3, 20, rng), rng.choice(["joy", "anger", "neutral"])] for n in range(300)]
    return {"paths": [write_csv(folder / "tweets.tsv", ["user_id", "tweet", "emotion"], rows, delimiter="\t")]}


def code_prompts(folder: Path, rng: random.Random) -> dict[str, Any]:
    rows = [
        {
            "prompt": f"Write function number {n} that adds {words(ENGLISH, 2, 6, rng)}",
            "completion": rng.choice(CODE).format(n=n, m=n * 7),
        }
        for n in range(200)
    ]
    return {"paths": [write_jsonl(folder / "code.jsonl", rows)], "max_length": 512}


def short_chats(folder: Path, rng: random.Random) -> dict[str, Any]:
    def chat() -> dict[str, Any]:
        turns = [{"role": "system", "content": "You are kind."}]
        for _ in range(rng.randint(1, 3)):
            turns.append({"role": "user", "content": rng.choice(["hi", "thanks", "ok", words(ENGLISH, 1, 9, rng)])})
            turns.append(
                {"role": "assistant", "content": rng.choice(["Hello!", "You are welcome.", words(ENGLISH, 1, 9, rng)])}
            )
        return {"messages": turns}

    train = write_jsonl(folder / "train.jsonl", [chat() for _ in range(300)])
    val = write_jsonl(folder / "val.jsonl", [chat() for _ in range(60)])
    return {"paths": [train], "val": [val], "max_length": 256}


def yes_no_questions(folder: Path, rng: random.Random) -> dict[str, Any]:
    """Short rows that coincide by chance, within a split and between the two."""
    rows = [
        [rng.choice(["yes", "no", "ok", "thank you", "sure", "why"]), rng.choice(["ja", "nein", "gut", "danke"])]
        for _ in range(400)
    ]
    train = write_csv(folder / "train.csv", ["source", "target"], rows[:320])
    return {"paths": [train], "val": [write_csv(folder / "val.csv", ["source", "target"], rows[320:])]}


def alpaca(folder: Path, rng: random.Random) -> dict[str, Any]:
    """The second part of the question is mostly empty, as it may be."""
    rows = [
        {
            "instruction": words(ENGLISH, 5, 12, rng),
            "input": words(ENGLISH, 3, 9, rng) if rng.random() < 0.3 else "",
            "output": words(ENGLISH, 5, 30, rng),
        }
        for _ in range(200)
    ]
    (folder / "alpaca.json").write_text(json.dumps(rows), encoding="utf-8")
    return {"paths": [str(folder / "alpaca.json")]}


def sensors(folder: Path, rng: random.Random) -> dict[str, Any]:
    """Numbers alone, with an id that is the same in every row and a year."""
    rows = [
        [3, 2024, n, rng.gauss(20, 4), rng.gauss(1013, 9), -rng.random() * 1e-5, rng.randint(0, 4)] for n in range(300)
    ]
    header = ["station_id", "year", "index", "temperature", "pressure", "drift", "label"]
    return {"paths": [write_csv(folder / "sensors.csv", header, rows)]}


def irises(folder: Path, rng: random.Random) -> dict[str, Any]:
    """A small table of rounded numbers: some rows coincide."""
    rows = [
        [round(rng.gauss(5, 0.6), 1), round(rng.gauss(3, 0.3), 1), rng.choice(["setosa", "virginica"])]
        for _ in range(200)
    ]
    train = write_csv(folder / "train.csv", ["sepal_length", "sepal_width", "species"], rows[:150])
    return {
        "paths": [train],
        "val": [write_csv(folder / "val.csv", ["sepal_length", "sepal_width", "species"], rows[150:])],
    }


def book(folder: Path, rng: random.Random) -> dict[str, Any]:
    """Plain text with blank lines between paragraphs."""
    (folder / "books").mkdir()
    for name in ("one", "two"):
        lines = [words(RUSSIAN, 5, 14, rng) + ("\n" if rng.random() < 0.2 else "") for _ in range(200)]
        (folder / "books" / f"{name}.txt").write_text("\n".join(lines), encoding="utf-8")
    return {"paths": [str(folder / "books")]}


def quoted_dialogue(folder: Path, rng: random.Random) -> dict[str, Any]:
    """Fields with newlines, quotes and delimiters in them; a mark at the head, as Excel writes it."""
    rows = [
        [
            f'He said "{words(ENGLISH, 3, 8, rng)}",\nthen; {words(FRENCH, 2, 8, rng)}',
            f"{n}, {words(ENGLISH, 4, 9, rng)}",
        ]
        for n in range(200)
    ]
    return {
        "paths": [write_csv(folder / "dialogue.csv", ["question", "answer"], rows, delimiter=";", encoding="utf-8-sig")]
    }


def pretokenised(folder: Path, rng: random.Random) -> dict[str, Any]:
    import pyarrow
    import pyarrow.parquet

    ids = [[rng.randrange(1000) for _ in range(rng.randint(5, 60))] for _ in range(200)]
    labels = [[-100] * 3 + row[3:] for row in ids]
    table = pyarrow.table({"input_ids": ids, "attention_mask": [[1] * len(row) for row in ids], "labels": labels})
    pyarrow.parquet.write_table(table, folder / "tokens.parquet")
    return {"paths": [str(folder / "tokens.parquet")], "max_length": 128}


def preferences(folder: Path, rng: random.Random) -> dict[str, Any]:
    import pyarrow

    rows = {name: [words(ENGLISH, 4, 20, rng) for _ in range(200)] for name in ("prompt", "chosen", "rejected")}
    table = pyarrow.table(rows | {"score": [rng.random() for _ in range(200)], "note": [None] * 200})
    with (
        pyarrow.OSFile(str(folder / "preferences.arrow"), "wb") as sink,
        pyarrow.ipc.new_stream(sink, table.schema) as writer,
    ):
        writer.write_table(table)
    return {"paths": [str(folder / "preferences.arrow")]}


def passengers(folder: Path, rng: random.Random) -> dict[str, Any]:
    """A table of numbers and names."""
    rows = [
        [
            n,
            rng.randint(0, 1),
            f"Mr. {words(ENGLISH, 2, 4, rng)}",
            rng.choice(["male", "female"]),
            rng.gauss(30, 9),
            rng.random() * 90,
        ]
        for n in range(200)
    ]
    return {"paths": [write_csv(folder / "t.csv", ["PassengerId", "Survived", "Name", "Sex", "Age", "Fare"], rows)]}


def many_labels(folder: Path, rng: random.Random) -> dict[str, Any]:
    """Several labels a text, as lists; tags a word, as lists too."""
    rows = [
        {"tokens": words(ENGLISH, 5, 12, rng).split(), "labels": [rng.randrange(5)], "ner_tags": [0, 1, 0]}
        for _ in range(100)
    ]
    return {"paths": [write_jsonl(folder / "m.jsonl", rows)]}


def prefixed(folder: Path, rng: random.Random) -> dict[str, Any]:
    """Short texts behind a long prefix that all rows share."""
    rows = [[f"translate English to German: {rng.choice(ENGLISH)}", rng.choice(GERMAN)] for _ in range(300)]
    train = write_csv(folder / "train.csv", ["input_text", "target_text"], rows[:250])
    return {"paths": [train], "val": [write_csv(folder / "val.csv", ["input_text", "target_text"], rows[250:])]}


def articles(folder: Path, rng: random.Random) -> dict[str, Any]:
    """Paragraphs of articles, with empty rows between them."""
    rows = [{"text": "" if n % 3 == 0 else f" = {words(ENGLISH, 1, 40, rng)} = \n"} for n in range(300)]
    return {"paths": [write_jsonl(folder / "wiki.jsonl", rows)]}


HEALTHY: list[Callable[[Path, random.Random], dict[str, Any]]] = [
    french_pairs, german_nested, portuguese_reviews, akkadian_aligned, chinese_news, emoji_tweets, code_prompts,
    short_chats, yes_no_questions, alpaca, sensors, irises, book, quoted_dialogue, pretokenised, preferences,
    passengers, many_labels, prefixed, articles,
]  # fmt: skip
