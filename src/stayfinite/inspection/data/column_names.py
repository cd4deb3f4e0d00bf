"""Common names of data columns."""

import re

from stayfinite.core.lazy_regex import lazy_regex

SOURCES = (
    "source", "src", "source_text", "src_text", "input_text", "prompt", "instruction", "question", "query", "inputs",
    "input", "transliteration", "premise", "sentence1", "sentence_1", "text_a", "context", "document", "article",
    "dialogue", "user", "human", "anchor",
)  # fmt: skip
TARGETS = (
    "target", "tgt", "trg", "target_text", "tgt_text", "output_text", "completion", "response", "answer", "outputs",
    "output", "translation", "summary", "highlights", "chosen", "reply", "reference", "label_text", "assistant", "gpt",
)  # fmt: skip
SECOND_SOURCES = {
    "instruction": ("input", "context"),
    "premise": ("hypothesis",),
    "sentence1": ("sentence2",),
    "sentence_1": ("sentence_2",),
    "text_a": ("text_b",),
    "question": ("context", "passage"),
    "anchor": ("positive",),
}
"""Secondary inputs next to a source; may be empty."""
PROMPTS = frozenset({
    "prompt", "instruction", "completion", "response", "chosen", "user", "human", "assistant", "gpt",
})  # fmt: skip
"""Names that mean prompt and answer are trained as one text."""
TEXTS = ("text", "content", "sentence", "body", "code", "review", "comment", "tweet", "message", "utterance", "caption")
LABELS = (
    "label", "labels", "class", "category", "sentiment", "intent", "y", "target", "class_label", "is_duplicate",
    "gold_label", "emotion", "topic", "rating", "stars", "score", "outcome", "species", "survived", "income", "churn",
    "fraud", "is_fraud", "diagnosis", "default", "quality",
)  # fmt: skip
CHATS = ("messages", "conversations", "conversation", "dialog", "turns", "chat")
TOKEN_IDS = ("input_ids", "decoder_input_ids", "labels", "label_ids", "target_ids", "tokens")
IDS = ("id", "uid", "uuid", "guid", "idx", "index", "row_id", "example_id", "sample_id", "key")
GROUPS = lazy_regex(
    r"^(?:(?:doc(?:ument)?|text|article|patient|subject|case|study|video|image|session|conversation|dialog(?:ue)?|"
    r"tablet|"
    r"group|recording|page|book|paper|scene|sequence)[_ ]?(?:id|no|key|name)?|\w*[_ ]id)$",
    re.IGNORECASE,
)
SPLITS_BY = lazy_regex(
    r"^(?:doc(?:ument)?|text|article|patient|subject|case|study|video|image|session|conversation|dialog(?:ue)?|tablet|"
    r"group|recording|page|book|paper|scene|sequence)[_ ]?(?:id|no|key)$",
    re.IGNORECASE,
)
"""Entities whose rows must not span splits. Users and speakers often do on purpose."""
NO_FEATURE = lazy_regex(
    r"^(?:\w+_)?(?:id|ids|idx|index|uid|key|no|nr|code|version|year|date|timestamp|split|fold|seed|bias|intercept|"
    r"const|constant|ones|pad|padding|zip|unnamed.*)$",
    re.IGNORECASE,
)
"""Numeric columns that are not features, or that are constant on purpose."""


def plain(name: str) -> str:
    """Normalize a column name for the lists above."""
    return re.sub(r"[\s\-.]+", "_", name.strip().lower())
