"""The checkpoint does not fit this model.

## What it means
A weight in the file has another shape than the model's, or one of the two has names that the other lacks. A strict
loader stops; a lenient one (`strict=False`, most `from_pretrained`) continues, and every name that it did not find
keeps its random start.

## Why it happens
- Another size or version of the model: 13B weights into a 7B configuration, another number of layers, heads or classes.
- Another wrapper: `module.` (DataParallel), `_orig_mod.` (compiled), `base_model.model.` (peft), `model.` (Lightning)
  precedes every name.
- A ZeRO-3 or FSDP shard was saved as if it were whole: shapes of `torch.Size([0])`.
- The code changed since: a renamed module, a fused projection.

## How to recognize it
- `size mismatch for transformer.h.0.attn.weight: copying a param with shape torch.Size([15360, 5120]) from checkpoint,
  the shape in current model is torch.Size([12288, 4096])`: the two sizes say which model it is.
- `Missing key(s) in state_dict` and `Unexpected key(s)`: compare the first name of each list; a common prefix is the
  wrapper.
- `Some weights ... were not initialized from the model checkpoint` with *most* of the model in the list, followed by a
  loss near `ln(vocabulary)`.

## How to fix it
- Take size and class from the checkpoint itself: its `config.json` (`AutoConfig.from_pretrained(path)`), Lightning's
  `hyper_parameters`, the script that wrote it.
- Wrapper: `state = {k.removeprefix("module."): v for k, v in state.items()}`; save `model.module.state_dict()` next
  time.
- Another number of classes, on purpose: `from_pretrained(path, num_labels=n, ignore_mismatched_sizes=True)`; plain
  torch: delete the head's entries, then `strict=False` and *print* what it returns.
- Added tokens: `model.resize_token_embeddings(len(tokenizer))` before loading the adapter or the state.
- ZeRO-3: `python zero_to_fp32.py . pytorch_model.bin`, or `"stage3_gather_16bit_weights_on_model_save": true`; FSDP: a
  full state dict (`fsdp_config: {"state_dict_type": "FULL_STATE_DICT"}`).

## When it is a false alarm
Where only the rows of embedding and output layer differ, it is the vocabulary (`tokenizer-mismatch`).
A new classification head is missing from every pre-trained checkpoint, a pooler or a language-model head is often left
over, and buffers such as `position_ids` or `rotary_emb.inv_freq` come and go between versions.
"""

import re

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.series import Message
from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import AGAINST, HINT, PROOF, STRONG, Clue, Clues, Rule, quote
from stayfinite.rules.signs.loaded_shapes import LEFT_OUT, other_vocabulary

_SHAPES = (
    r"size mismatch for [\w.]+|copying a param with shape|trying to set a tensor of shape .{0,60}which has shape|"
    r"\b(?:shapes?|dimensions)\b.{0,60}\b(?:shapes?|dimensions)\b.{0,40}\b(?:for param\w*|in the checkpoint)\b|"
    r"variable shape .{0,40}assigned value shape|"
    r"the model and loaded state dict do not match exactly|architecture mismatch|"
    r"assign requires shapes of both tensors to match|ensure that the architectures match|"
    r"layer count mismatch when loading|weight file containing \d+ layers into a model with \d+|"
    r"cannot copy param \d+ weights from layer"
)
_KEYS = (
    r"error\(?s?\)? in loading state_dict for|(?:missing|unexpected) key(?:\(s\)| ['\"][\w.]+['\"]) in state_dict|"
    r"missing_keys\W{1,4}['\"\w].{0,400}unexpected_keys|keyerror: ['\"][\w.]*(?:\.weight|\.bias)['\"]|"
    r"key \S+ not found in checkpoint|missing keys? in (?:source )?state_?dict\W{1,3}\w|"
    r"keys? (?:are |is )?(?:missing|unexpected|not found) (?:in|from) (?:the )?(?:checkpoint|state_?dict)"
)
_PEFT = r"target modules .{0,200}not found in the base model|no modules? targeted"
_LENIENT = r"load_state_dict\([^()]*(?:\([^()]*\)[^()]*)*strict\s*=\s*False"
_GROUP_SIZE = r"parameter group that doesn'?t match the size of optimizer'?s group"
"""The optimizer was saved with another number of parameters: those of another model."""
_STATE = r"[\\/]optim[\\/]\w+\.py|\bexp_avg\w*\.\w+_\(|\bbuf\.mul_\(|momentum_buffer|\boptim\w*\.step\(\)"
_UNLIKE = r"(?i)size of tensor a \(\d+\) must match the size of tensor b \(\d+\)"
NEAR = 6
"""Lines of a traceback between an error and the optimizer's code."""
_HEAD = lazy_regex(
    r"size mismatch for [\w.]*(?:head|class|\bfc\b|clf|logit)[\w.]*: .{0,60}\[\d+(,[^\]]*)?\].{0,80}\[\d+(?(1)\1|)\]",
    re.IGNORECASE,
)
"""A head that differs only in its number of rows."""


def judge(facts: Facts) -> Clues:
    """Clues: the loader's list of names and shapes, or a shape mismatch in the forward pass."""
    shapes = _refusal(facts, _SHAPES)
    keys = _refusal(facts, _KEYS)
    vocabulary = other_vocabulary(facts)
    if vocabulary:
        rows = f"{vocabulary.one[0]} and {vocabulary.other[0]}"
        mend = (
            f"resize_token_embeddings({vocabulary.one[0]}) before loading, or the base and tokenizer it was saved with"
        )
        yield Clue(f"only the number of tokens differs: {rows}", HINT, vocabulary.where, fix=mend)
    if shapes:
        yield Clue(shapes.text.strip()[:240], PROOF, shapes.where)
        if "do not match exactly" in shapes.text and facts.symptoms.crash is None and not facts.symptoms.trouble:
            yield Clue(
                "a loader that only warns: tensors that do not fit keep random weights", AGAINST * 1.5, shapes.where
            )
        elif (
            _HEAD.search(shapes.text)
            and len(list(facts.all_said(_SHAPES))) < 2  # torch refuses with a list of all that differ
            and facts.symptoms.crash is None
            and not facts.symptoms.trouble
        ):
            yield Clue("only the classes of a head differ, and nothing failed", AGAINST * 4, shapes.where)
    elif keys:
        yield Clue(keys.text.strip()[:240], PROOF - HINT / 2, keys.where)
    yield from quote(facts.said(_GROUP_SIZE), STRONG + HINT)
    update, unlike = facts.said(_STATE), facts.said(_UNLIKE)
    if update is not None and unlike is not None and 0 <= unlike.line - update.line <= NEAR:
        text = f"in the optimizer's step, {re.findall(_UNLIKE, unlike.text)[-1]}: its state is that of another model"
        yield Clue(text, PROOF, unlike.where, fix="load only the weights, and start with a new optimizer")
    yield from quote(facts.said(_PEFT), STRONG + HINT, "{:.240}")
    if not shapes and not keys and facts.symptoms.trouble and facts.symptoms.crash is None:
        yield from quote(facts.mentioned(_LENIENT), STRONG, "names that do not match are skipped: {:.100}", risk=True)


def _refusal(facts: Facts, pattern: str) -> Message | None:
    """The first such line that does not say that the tensor is skipped."""
    return next((one for one in facts.all_said(pattern) if not re.search(LEFT_OUT, one.text, re.IGNORECASE)), None)


RULE = Rule(
    code="SF704",
    fix="build the model from the checkpoint's own config; strip wrapper prefixes (module., _orig_mod.); resize "
    "the embeddings before loading",
    beats=("nan-loss", "environment", "resume-state-missing", "tokenizer-mismatch"),
)
