"""Text is damaged, or not UTF-8.

## What it means
Bytes became other characters than were written. Either reading stops (`UnicodeDecodeError`), or it continues and the
text is full of replacement characters and of pairs like "Ã©" for "é". The tokenizer splits those into rare pieces;
the model learns the damage.

## Why it happens
- A file in Latin-1, Windows-1252, GBK, Shift-JIS or UTF-16 that is read as UTF-8, or the other way round: Python on
  Windows reads in the system's encoding unless told.
- `errors="ignore"` or `errors="replace"` somewhere in the pipeline; text that was decoded twice.
- A byte order mark at the head of a file, null bytes, a binary or compressed file under the name of a text file.
- Cutting a file by bytes in the middle of a character.

## How to recognize it
- `UnicodeDecodeError: 'utf-8' codec can't decode byte 0xe9 in position 17: invalid continuation byte`;
  `'gbk' codec can't decode byte`; `'charmap' codec can't decode byte`; `surrogates not allowed` when writing.
- The character U+FFFD in the text, "Ã", "â€™", "ï»¿" at a file's head.
- A share of unknown or single-byte tokens that is far above that of clean text.

## How to fix it
- Name it: `open(path, encoding="utf-8")`, `pd.read_csv(path, encoding="cp1252")`,
  `load_dataset("csv", data_files=..., encoding="gb18030")`; `encoding="utf-8-sig"` removes the mark; `PYTHONUTF8=1`
  makes UTF-8 the default on Windows.
- Find out what it is: `file -i data.txt`, or the package charset-normalizer; repair doubly decoded text with ftfy.
- Convert once: `iconv -f cp1252 -t utf-8 in.txt > out.txt`.
- Drop lines with U+FFFD; do not ignore errors silently.

## When it is a false alarm
Emoji, rare scripts and mathematical letters are valid UTF-8 and need no repair. Byte-level models (ByT5) read any
bytes, and still learn the damage.
"""

from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import HINT, PROOF, STRONG, Clue, Clues, Rule, quote


def judge(facts: Facts) -> Clues:
    """Clues: a codec error or counted replacement characters, which are proof."""
    seen = facts.seen("data.damaged_text_share")
    if seen is not None and seen.value > 0.001:
        yield Clue(
            f"{seen.value:.1%} of the rows hold damaged characters", PROOF if seen.value > 0.01 else STRONG, seen.where
        )
        kinds = facts.seen("data.damage_kinds")
        if kinds is not None:
            yield Clue(str(kinds.value), HINT, kinds.where)
    refused = facts.said(
        r"UnicodeDecodeError|UnicodeEncodeError|codec can'?t (?:decode|encode)|surrogates not allowed|"
        r"invalid (?:continuation|start) byte|stream did not contain valid utf-?8|invalid utf-?8|"
        r"not (?:a )?valid utf-?8|illegal multibyte sequence"
    )
    yield from quote(refused, PROOF)


RULE = Rule(
    code="SF314",
    fix=(
        'name the encoding when reading (encoding="utf-8", "utf-8-sig", "cp1252", "gb18030"), convert once, and drop '
        "damaged lines"
    ),
    proofs={
        # Which file is not UTF-8, why, and what it was read as, in words.
        "data.not_utf8": "{}",
    },
    beats=("bad-data-row", "tokenizer-mismatch", "environment"),
    observes={
        "data.damaged_text_share": "the share of rows with replacement or control characters, bytes that cannot be "
        "decoded, or doubly decoded text, 0 to 1",
        "data.damage_kinds": "how many rows have each kind of damage, in words",
    },
)
