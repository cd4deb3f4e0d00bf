"""sacrebleu gets one list per sentence instead of one per reference set.

## What it means
`sacrebleu.corpus_bleu(hypotheses, references)` needs one list per *reference set*, each as long as the hypotheses:
`[[ref of sentence 1, ref of sentence 2, ...]]`. Given one list per sentence, it takes the first sentence's reference
for a whole set: only the first sentence is scored, or a string is read letter by letter. The score is wrong but
plausible.

## Why it happens
nltk's `corpus_bleu` and Hugging Face's `evaluate.load("sacrebleu")` need one list per *sentence*; sacrebleu itself
needs the transpose. Code moves from one to the other.

## How to recognize it
- `corpus_bleu(preds, [[r] for r in refs])` or `corpus_chrf(...)`, `corpus_ter(...)` with the same shape, from
  sacrebleu.
- A score near 0, or near 100, that hardly changes between checkpoints and does not fit the texts that one reads.
- `EOFError: Source and reference streams have different lengths!` from older versions.

## How to fix it
- sacrebleu: `corpus_bleu(preds, [refs])` for one reference a sentence; with several, `list(zip(*refs_per_sentence))`,
  padded to the same number.
- evaluate, torchmetrics and nltk: `[[r] for r in refs]` is right.
- Test it: score the references against themselves. It must be 100.

## When it is a false alarm
With `evaluate` or nltk the form that looks wrong here is the right one.
"""

from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import FAIR, HINT, PROOF, STRONG, Clue, Clues, Rule, quote

_NAME = r"(?:\w*refs?(?:_\w+)?|\w*references?|gold\w*|\w*labels|\w*targets?)"
_CALL = (
    r"corpus_(?:bleu|chrf|ter|score)\(\s*\w+\s*,\s*\[\s*\[\s*\w+\s*\]\s*for\b|"
    rf"\b{_NAME}\.append\(\s*\[\s*\w+(?:\.strip\(\))?\s*\]\s*\)|"
    rf"\b{_NAME}\s*[:=]\s*\[\s*\[\s*\w+(?:\[[^\]]*\])?(?:\.strip\(\))?\s*\]\s*for\b"
)
_FLAT_CALL = rf"sacrebleu\.corpus_(?:bleu|chrf|ter)\(\s*\w+\s*,\s*{_NAME}\s*[,)]"
_SINGLES = r"\[\s*\[\s*(?:\"[^\"]*\"|'[^']*')\s*\]\s*,\s*\[\s*(?:\"[^\"]*\"|'[^']*')\s*\]"
_OWN_CONVENTION = (
    r"sacrebleu|nrefs:\d+\|.*\btok:|BP = [\d.]+ ratio = [\d.]+ hyp_len|"
    r"corpus_chrf|corpus_ter|corpus_score|corpus_bleu\(.{1,120}\)\.score"
)
_OTHER_CONVENTION = r"\bnltk\b|evaluate\.load|load_metric|torchmetrics"


def judge(facts: Facts) -> Clues:
    """Clues: the call as written, or sacrebleu's error about lengths."""
    if facts.mentioned(_OWN_CONVENTION) and not facts.mentioned(_OTHER_CONVENTION):
        call, flat = facts.mentioned(_CALL), facts.mentioned(_FLAT_CALL)
        if call:
            yield Clue(f"one list per sentence: {call.text.strip()[:160]}", PROOF, call.where)
        elif flat:
            yield Clue(f"references without the outer list: {flat.text.strip()[:160]}", STRONG, flat.where)
        elif (singles := facts.mentioned(_SINGLES)) is not None:
            yield Clue(f"one list per sentence: {singles.text.strip()[:160]}", STRONG + HINT, singles.where)
    lengths = facts.said(
        r"(?:source|system|hypothes[ie]s) and reference streams have different lengths|"
        r"number of hypotheses .{0,40}references .{0,30}(?:should be the same|differ)"
    )
    yield from quote(lengths, STRONG + FAIR)


RULE = Rule(
    code="SF801",
    fix="corpus_bleu(preds, [refs]); check that the references score 100 against themselves",
    beats=("zero-answer-rate", "metric-hides-failure"),
)
