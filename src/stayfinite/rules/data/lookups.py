"""Lookups with an index out of range: torch's messages, and which table was meant.

Embeddings, position tables and class targets fail with similar messages; their rules share this module.
"""

from __future__ import annotations

import re
from functools import lru_cache

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.series import Message
from stayfinite.rules.facts import Facts, Line
from stayfinite.rules.known import number_in

EMBEDDING = (
    r"srcIndex < srcSelectDimSize|index_?select(?:Large|Small)Index|index out of range in self|"
    r"vectorized[_ ]gather[_ ]kernel|index out of range: Tried to access index \d+ out of table|"
    r"index out of range at .{0,80}(?:THTensor|TH/)|piece id is out of range|"
    r"indices\[[\d, ]*\] ?= ?-?\d+ is not in \[0, ?\d+\)"
)
"""Errors of torch (CPU and CUDA, old and new), TensorFlow and others for a missing row of a table."""

TARGET = (
    r"(?:\bt|cur_target|target_val|target) ?>= ?0 ?&& ?(?:t|cur_target|target_val|target) ?< ?n_?classes|"
    r"Target -?\d+ is out of bounds|class_?id should be \[?from 0|wrong annotation: class_?id|"
    r"Class values must be (?:smaller than num_classes|non-negative)|"
    r"(?:Spatial)?ClassNLLCriterion.{0,200}Assertion|Label class \d+ exceeds|"
    r"all elements of target should be between 0 and 1|target_val >= zero && target_val <= one|"
    r"label value of -?\d+ which is outside the valid range|"
    r"blank must be in label range|label must be in \[0, ?num_class\)|"
    r"(?:labels?|targets?|class(?:es| ids?| ind(?:ex|ices))?) (?:values? |tensor )?(?:(?:is |are )?"
    r"(?:out of (?:range|bounds)|outside (?:of )?the (?:range|valid|classes))|(?:must|should|expected to) be "
    r"(?:in the range|in \[0|between 0 and|(?:less|smaller) than (?:the )?num))|only support 0 ?<= ?label|"
    r"y contains previously unseen labels|"
    r"(?:invalid|expected:?) (?:classes|class(?:es)? inferred).{0,60}(?:got|expected)"
)
"""Errors for a class index outside the classes."""

SCATTER = (
    r"index out of bounds[\"'`]* ?\)?[`'\"]? failed|idx_dim >= 0 && idx_dim < index_size|-sizes\[i\] <= index|"
    r"indexValue >= 0 && indexValue < (?:tensor|src)\.sizes|index out of bounds: 0 <= tmp\d+ < \d+|"
    r"index -?\d+ is out of bounds for (?:dimension|axis|dim) \d+ with size \d+|"
    r"index -?\d+ is out of range for (?:dimension|axis|dim) \d+|"
    r"(?:invalid|wrong) index in (?:gather|scatter)|index(?:es)? (?:must be|should be) (?:smaller|less) than"
)
"""An index of a gather, scatter or subscript out of bounds: labels more often than tokens."""

ASSERT = (
    r"device-side assert triggered|cuda (?:runtime )?error ?\((?:59|710)\)|cudaErrorAssert|"
    r"CUBLAS_STATUS_(?:ALLOC_FAILED|NOT_INITIALIZED) when calling"
)
"""A kernel refused an index, but does not say which."""

_POSITION_TABLES = {
    r"\bbertweet-large": 512,
    r"\bbertweet|\bblenderbot-(?:\d|distill)": 128,
    r"\bphobert": 256,
    r"\bmodernbert|\bnomic-": 8192,
    r"\blongformer|\bbig_?bird": 4096,
    r"\bled-(?:base|large)|\bcanine": 16384,
    r"\b(?:xlm-?)?roberta|camembert|\bcodebert|\bgraphcodebert|\bunixcoder|\bxlm-r": 512,
    r"\b\w{0,8}bert\b|\b\w{0,8}bert[-_]|\belectra|\bernie|\bmpnet|\bminilm|\be5-|\bbge-|\bgte-(?:base|large|small)|"
    r"\blayoutlm|\bopenai-gpt\b|\bopus-mt|\bmarian|\bprophetnet|\bbioclinical|\bsentence-transformers": 512,
    r"\bsiglip": 64,
    r"\bgpt-?2\b|\bdistilgpt2|\bdialogpt|\bm?bart\b|\bbart-|\bmbart|"
    r"\bm2m100|\bnllb|\bbiogpt|\bpegasus|\bspeech_to_text": 1024,
    r"\bclip\b|\bopenclip|\bclip-vit": 77,
    r"\bopt-\d|\bgpt-?neo\b|\bxglm|\bgalactica": 2048,
    r"\bwhisper": 448,
}
_NO_TABLE = len(_POSITION_TABLES)
_LENGTHS = (
    "max_length", "max_seq_length", "max_seq_len", "max_sequence_length", "block_size", "model_max_length",
    "cutoff_len", "max_source_length", "max_len", "seq_length", "seq_len", "max_words", "model_max_len",
    "max_input_length", "max_tokens", "sequence_len", "max_target_length", "context_length", "input_length",
    "input_len", "sequence_length", "max_source_len", "max_text_length",
)  # fmt: skip
_WRITTEN_LENGTH = lazy_regex(
    r"\b(?:max_(?:seq(?:uence)?_)?len(?:gth)?|block_size|(?:input|sequence|text)[ _]len(?:gth)?|seq_len(?:gth)?)\b"
    r"(?: ?[=:] ?| of (?:up to )?| up to )(\d+)|\binput_ids\b.{0,20}(?:shape|size)\W{1,12}\d+, ?(\d+)",
    re.IGNORECASE,
)
_TABLE = lazy_regex(r"Tried to access index (\d+) out of table with (\d+) rows", re.IGNORECASE)
_OF_SIZE = lazy_regex(
    r"index (\d+) is out of bounds for (?:dimension|axis|dim) \d+ with size (\d+)|"
    r"= ?(\d+) is not in \[0, ?(\d+)\)|value of (\d+) which is outside the valid range of \[0, ?(\d+)\)",
    re.IGNORECASE,
)
_BOUND = lazy_regex(r"\b0 <= \w+ < (\d+)", re.IGNORECASE)
_VOCABULARY = (
    "vocab_size", "n_vocab", "vocabulary_size", "num_embeddings", "vocab", "n_tokens", "num_tokens", "ntokens",
    "src_vocab_size", "tgt_vocab_size", "input_dim", "max_features", "num_words", "voc_size",
)  # fmt: skip
_CLASS_COUNT = (
    "num_classes", "n_classes", "num_labels", "n_labels", "nclass", "num_class", "classes", "nc", "n_class",
    "number_of_classes", "class_num", "out_features",
)  # fmt: skip
_WRITTEN_ROWS = lazy_regex(r"\bEmbedding\(\s*(\d+)|\bvocab\w*(?: size)?\W{1,6}(\d{3,})\b", re.IGNORECASE)
_WRITTEN_CLASSES = lazy_regex(r"\b(\d+) (?:classes|labels|categories)\b", re.IGNORECASE)


VOCABULARY = 5_001
"""A table of at least this many rows is a vocabulary."""
TWO_SIZES = (
    r"(?:size of tensor a|expanded size of the tensor) \((\d+)\) must match the "
    r"(?:size of tensor b|existing size) \((\d+)\)"
)


def two_sizes(message: Message) -> tuple[int, int]:
    """The sizes of a message that matches `TWO_SIZES`, the smaller one first."""
    found = re.search(TWO_SIZES, message.text, re.IGNORECASE)
    assert found is not None
    return min(int(found[1]), int(found[2])), max(int(found[1]), int(found[2]))


def lookup_failure(facts: Facts) -> Message | None:
    """The line that reports a row missing from a table."""
    return facts.said(EMBEDDING)


def target_failure(facts: Facts) -> Message | None:
    """The line that reports a class that does not exist."""
    return facts.said(TARGET)


def bare_assert(facts: Facts) -> Message | None:
    """A device-side assert without any explanation."""
    if facts.said(rf"{EMBEDDING}|{TARGET}|{SCATTER}|Assertion .+ failed|probability tensor contains") is not None:
        return None
    return facts.said(ASSERT)


def table_rows(message: Message) -> int | None:
    """Rows of the table, if the message gives them (old torch gives the last index)."""
    found = _TABLE.search(message.text)
    return int(found.group(2)) if found else None


def first_missing(message: Message) -> int | None:
    """Rows of the table if the missing row is the very next one, which a counter hits first."""
    asked = asked_and_rows(message)
    return asked[1] if asked is not None and asked[0] == asked[1] else None


def asked_and_rows(message: Message) -> tuple[int | None, int] | None:
    """``(requested row or None, rows of the table)``, if the message gives the rows."""
    old, new = _TABLE.search(message.text), _OF_SIZE.search(message.text)
    if old is not None:
        return int(old.group(1)), int(old.group(2)) + 1
    if new is not None:
        row, rows = (int(group) for group in new.groups() if group is not None)
        return row, rows
    bound = _BOUND.search(message.text)
    return None if bound is None else (None, int(bound.group(1)))


def is_vocabulary(facts: Facts, rows: int) -> Line | None:
    """``(where, text)`` that gives the vocabulary exactly this size."""
    return _of_this_number(facts, rows, _VOCABULARY, _WRITTEN_ROWS)


def is_class_count(facts: Facts, rows: int) -> Line | None:
    """``(where, text)`` that gives the model exactly this number of classes."""
    return _of_this_number(facts, rows, _CLASS_COUNT, _WRITTEN_CLASSES)


def _of_this_number(facts: Facts, number: int, names: tuple[str, ...], written: re.Pattern[str]) -> Line | None:
    for setting in facts.settings.all(*names):
        if number_in(setting.value) == number:
            return Line(setting.where, f"{setting.name}: {setting.value}")
    for where, text in facts.settings.notes:
        if any(int(next(filter(None, found.groups()))) == number for found in written.finditer(text)):
            return Line(where, text.strip()[:80])
    return None


def longest_input(facts: Facts) -> tuple[int, str, str] | None:
    """The largest length that inputs are cut or padded to: value, text and location."""
    found = []
    for setting in facts.settings.all(*_LENGTHS):
        value = number_in(setting.value)
        if value is not None and 0 < value < 1e7:
            found.append((int(value), f"{setting.name}: {setting.value}", setting.where))
    for where, text in facts.settings.notes:
        found += [
            (int(match.group(1) or match.group(2)), match.group(), where) for match in _WRITTEN_LENGTH.finditer(text)
        ]
    return max(found, default=None)


def position_limit(facts: Facts) -> tuple[int, str] | None:
    """Size of the model's position table, and its source."""
    setting = facts.settings.find("max_position_embeddings", "n_positions", "n_ctx")
    if setting is None and is_roberta(facts) and _from_scratch(facts):
        return 510, "RobertaConfig's own max_position_embeddings of 512 (510 usable)"
    if setting is not None and (value := number_in(setting.value)) is not None and value > 0:
        told = f"{setting.name}: {setting.value}"
        if is_roberta(facts):
            return int(value) - 2, f"{told}, of which RoBERTa uses {int(value) - 2}"
        return int(value), told
    model = facts.context.model
    texts = [model.value] if model is not None else [text for _, text in facts.settings.texts()]
    first, text = min(((_table_of(text), text) for text in texts), key=lambda found: found[0], default=(_NO_TABLE, ""))
    if first == _NO_TABLE:
        return None
    limit = [*_POSITION_TABLES.values()][first]
    return limit, f"{text.strip()[:80]} has positions for {limit} tokens"


@lru_cache(maxsize=4096)  # every look at a run asks for all its settings
def _table_of(text: str) -> int:
    """Number of the first model of `_POSITION_TABLES` that a text names."""
    named = (number for number, pattern in enumerate(_POSITION_TABLES) if re.search(pattern, text, re.IGNORECASE))
    return next(named, _NO_TABLE)


def _from_scratch(facts: Facts) -> bool:
    """Whether a model is created from a default config instead of loaded."""
    named = facts.settings.find("model_name_or_path", "pretrained_model_name_or_path", "model_name", "model_id")
    made = facts.settings.find("model_type") or facts.settings.search(r"\bfrom_config\(|Config\(\)")
    return named is None and made is not None and facts.settings.search(r"from_pretrained\(['\"][\w/-]*roberta") is None


def is_roberta(facts: Facts) -> bool:
    """Whether the model numbers positions from padding_idx + 1, so two rows of its table are never used."""
    return facts.mentioned(r"\b(?:xlm-?)?roberta|camembert|longformer|\bbertweet|\bphobert") is not None
