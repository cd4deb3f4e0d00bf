"""The checkpoint holds NaN or inf.

## What it means
Some tensor in the file, a weight or an optimizer moment, is not finite. Whatever is started from it is NaN at its first
step, whatever the data, the learning rate or the precision.

## Why it happens
- It was saved after the step that broke the run: checkpoints are saved by time, without checking values. Later
  ones then push the good ones out (`save_total_limit`).
- The moments went first: a gradient of infinity was skipped for the weights and had already entered Adam's averages.
  The weights look fine and the first step after loading destroys them.
- A conversion overflowed: weights of more than 65,504 cast to fp16, an adapter merged in half precision, quantizing
  with a scale of 0.
- BatchNorm's running statistics took in one NaN batch: training is fine and evaluation is NaN.

## How to recognize it
- `stayfinite scan PATH` names the tensors and the newest checkpoint that is finite.
- A resumed run is NaN from its first logged step, while the run before was healthy when that step was logged.
- NaN with any batch, in fp32 as well, already in the forward pass.

## How to fix it
1. Go back to the newest finite checkpoint, not the newest.
2. Find out why it broke (its log, round the step at which poison entered); else it will break again at the same place.
3. If only moments are bad: keep the weights, drop the optimizer's state and warm up again.
4. If only BatchNorm statistics are: reset them (`m.reset_running_stats()`) and run some hundred batches in train mode.
5. Refuse to write such a file: check `all(torch.isfinite(p).all() for p in model.parameters())` before saving. This
   toolkit's checkpoints are verified before they are renamed into place.

Retention that keeps old ones: transformers `save_total_limit=None` or `load_best_model_at_end=True`; Lightning
`ModelCheckpoint(save_top_k=3, monitor="val_loss")` besides `save_last=True`.

## When it is a false alarm
Minus infinity in a *mask buffer* is meant. Tensors of an unused head may be NaN because they were never initialized;
they harm nothing until they are used.
"""

from stayfinite.rules.checkpoint.restart import resumed
from stayfinite.rules.facts import Facts
from stayfinite.rules.numerics.nan_weights import NAMED_TENSOR, SAID_OF_WEIGHTS
from stayfinite.rules.rule import AGAINST, FAIR, HINT, PROOF, STRONG, Clue, Clues, Rule, quote
from stayfinite.rules.signs.witness import not_finite

_TAKEN_UP = (
    r"\b(?:warm start|restor\w+|resum\w+|load(?:ed|ing|s)?\b.{0,40}\b(?:checkpoint|ckpt|policy|\w*opt\w*|model)|"
    r"\.load\(|continu\w+ (?:from|pre-?train)|from (?:a |the |my |\w+ )?(?:checkpoint|ckpt|\S+\.pth?\b)|"
    r"checkpoint_last)"
)
_ITS_STATE = (
    r"^(?!\s*\|).*(?:running_(?:mean|var)|obs_rms|exp_avg_sq|opt(?:imizer)?_?state|named_buffers|\.pth?\b|checkpoint|ckpt)"
    r"\b.{0,80}\b(?:nan|infs?)\b"
)
_OTHER_FILE = (
    r"\b(?:ckpt|checkpoint|epoch)[-_ ]?\d+\S*(?: is| was|:| ->)? ?(?:fine|ok|good|normal|\d+\.\d)|"
    r"\b(?:official|original|base|fresh|other)\b.{0,40}\b(?:trains?|works?|gives?|is|are) (?:fine|ok|numbers|well|good)"
)
_AT_ONCE = (
    r"before (?:a single|any) (?:\w+ )?(?:step|training)|very first|from (?:iteration|step) 0|every batch|for every|"
    r"no_grad|whatever (?:lr|learning rate)|first (?:iter\w*|step|update|predict)"
)


def judge(facts: Facts) -> Clues:
    """Clues: a scan is proof; a resumed run that is NaN from its first step is a hint."""
    scan = facts.seen("checkpoint.nonfinite")
    if scan is not None:
        if scan.value:
            yield Clue(f"NaN or inf in the checkpoint: {scan.value}", PROOF + HINT, scan.where)
        else:
            yield Clue("every tensor of the checkpoint is finite", AGAINST * 3, scan.where)
    tensor = facts.said(NAMED_TENSOR) or facts.said(SAID_OF_WEIGHTS)
    file = facts.mentioned(
        r"\b\w*(?:checkpoint|ckpt|pre-?trained|resume\w*|load_from|weights|restore\w*|init_from)\w*\b\W{1,3}.{0,80}"
        r"(?:\.(?:pth?|ckpt|bin|safetensors|h5|npz|t7|tar|onnx)\b|checkpoint-\d+|/)|\btorch\.load\(|load_state_dict\("
    )
    if tensor and file and facts.symptoms.good_before == 0:
        yield Clue(f"a loaded tensor is NaN or inf: {tensor.text.strip()[:120]}", STRONG, tensor.where)
    bad = not_finite(facts)
    loaded = facts.mentioned(_TAKEN_UP)
    if loaded is not None and bad is not None and facts.symptoms.good_before <= 1:
        yield from quote(facts.mentioned(_ITS_STATE), STRONG, "a loaded state is NaN or inf: {:.100}")
        yield from quote(facts.mentioned(_OTHER_FILE), STRONG, "another file is fine: {:.100}")
        yield from quote(facts.mentioned(_AT_ONCE), FAIR, "NaN or inf at once after loading: {:.100}")
    taken_up = resumed(facts)
    if bad and taken_up:
        text, where = taken_up.text, taken_up.where
        if facts.symptoms.from_start or facts.symptoms.points == 0:
            weight = STRONG if facts.symptoms.points else FAIR
            yield Clue(f"NaN or inf from the first step after loading ({text[:100]})", weight, where)
        else:
            yield Clue(text[:120], HINT / 2, where)


RULE = Rule(
    code="SF702",
    fix="return to the newest checkpoint that `stayfinite scan` calls good, and find what broke the run there",
    beats=("nan-loss", "loss-collapse", "nan-weights"),
    observes={"checkpoint.nonfinite": "names of tensors with NaN or infinite values; empty when none"},
    says={
        r"nans detected in the merged weights": PROOF,
    },
)
