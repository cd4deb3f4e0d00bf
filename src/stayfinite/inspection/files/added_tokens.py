"""Tokens that a script adds to a tokenizer, whose model has no row for them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.inspection.files.plan import Plan
from stayfinite.readers.configs.notebooks import script_of
from stayfinite.readers.configs.script_settings import whole_tree
from stayfinite.rules.plans import Remark

_FULL = (
    (lazy_regex(r"(?:openai-community/)?(?:distil)?gpt2(?:-\w+)?"), {"<|endoftext|>"}),
    (lazy_regex(r"(?:google-bert/|distilbert/)?(?:distil)?bert-(?:base|large)-\w+(?:-\w+)*"),
     {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}),
    (lazy_regex(r"(?:\w+/)?llama-?[12]?-\d+b(?:-(?:chat-)?hf)?|mistralai/Mistral-7B-(?:Instruct-)?v0\.[12]", 2),
     {"<s>", "</s>", "<unk>"}),
)  # fmt: skip
"""Models whose embedding has no row to spare, and the tokens that they have already."""
_NEW = lazy_regex(r"(?!\[unused\d)[\[<].+[\]>]")
"""What no vocabulary of plain words holds."""
_ROOM = lazy_regex(r"resize_token_embeddings|vocab_size\s*=|embed_tokens|\.wte\b|setup_chat_format|new_embedding")


def added_tokens(plan: Plan) -> list[Remark]:
    """`tokenizer.add_special_tokens(...)` without `model.resize_token_embeddings(...)`."""
    model = plan.context.model
    if model is None or not plan.trains or any(_ROOM.search(each.text) for each in plan.scripts):
        return []
    known = next((tokens for name, tokens in _FULL if name.fullmatch(str(model.value).strip())), None)
    loads = any(".from_pretrained" in each.name and each.name.startswith(("AutoModel", "GPT2", "Bert", "Llama"))
                for each in plan.settings)  # fmt: skip
    for source in plan.scripts if known is not None and loads else ():
        lines = script_of(source.text) if source.kind == "notebook" else []
        tree = whole_tree("\n".join(line for line, _ in lines) or source.text)
        for call, token in _added(tree) if tree is not None else ():
            if token not in (known or ()):
                at = lines[call.lineno - 1][1] if lines else call.lineno
                text = f"{token!r} is added, and the embedding of {model.value} has no row for it"
                return [(text, f"{source.name}:{at}", "model.resize_token_embeddings(len(tokenizer))")]
    return []


def _added(tree: ast.Module) -> Iterator[tuple[ast.Call, str]]:
    """Each word that a tokenizer is given, with the call."""
    named = {each.id: node.value for node in tree.body if isinstance(node, ast.Assign) for each in node.targets
             if isinstance(each, ast.Name)}  # fmt: skip
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or getattr(node.func, "attr", "") not in ("add_special_tokens", "add_tokens"):
            continue
        for given in node.args[:1]:
            words = _words(named.get(given.id, given) if isinstance(given, ast.Name) else given)
            yield from ((node, word) for word in words if _NEW.fullmatch(word))


def _words(given: ast.expr) -> Iterator[str]:
    """The literal words of a dict, a list or one word."""
    if isinstance(given, ast.Dict):
        for each in given.values:
            yield from _words(each)
    elif isinstance(given, (ast.List, ast.Tuple)):
        for each in given.elts:
            yield from _words(each)
    elif isinstance(given, ast.Constant) and isinstance(given.value, str):
        yield given.value
