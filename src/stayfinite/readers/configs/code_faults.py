"""Faults that quoted code shows by its own text: calls in a wrong order, forgotten, or on the wrong thing.

Code is compared in one spelling, that of `ast.unparse`: a statement a line, four spaces a level. An excerpt leaves
things out, so a missing call counts only where the whole text never mentions it.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.settings import CodeFault
from stayfinite.readers.configs.course.uncalled import course_of_parts
from stayfinite.readers.configs.excerpts import Excerpt, excerpts
from stayfinite.readers.configs.judges import faults_of_parts


class Shown(NamedTuple):
    """A fault that a pattern finds in code."""

    cause: str
    text: str
    code: str
    """A pattern; where it matches, the code has the fault."""
    but: str = r"(?!)"
    """Words that excuse it, anywhere in the text."""
    only: str = ""
    """Words without which it is none."""
    sure: bool = True


_BUILT = r"(?:\w*Adam\w*|\w*SGD|RMSprop|Adagrad|Lion|Adafactor)\("
_NEVER = (
    r"^( *)(?:el)?if (?:.* and )?(?:[^\n]*% ([\w.]+|len\(\w+\)) == (?:\2|-\d+)|[\w.]*(?:step|iter)\w* < 0)\)?"
    r"(?: and .*)?:\n(?:\1 .*\n)*?\1 +"
)
_LAYER = (
    r"(?:(?:torch\.)?nn\.[A-Z]\w*|(?:make|build|create)_\w+|timm\.create_model|torch\.ones\(.*\)\.requires_grad_|"
    r"[A-Z]\w*(?:Block|Layer|Conv|Linear|Head|Cell|Expert|Net|Encoder|Decoder|Attention)\w*|Head|Block)\("
)
_NO_LAYERS = r"(?!\w*(?:transform|aug|metric|loss|callback|optim|sched|data|loader|hook|hist|log))"
_QUERY_KEY = (
    r"(?:torch\.)?(?:(?:matmul|bmm|einsum)\((?:'[^']*', )?)?\(?(?:\w*\.)?(?:q|query|queries|Q)\w*(?: @ |, )(?:k|K|"
    r"keys?)\w*\b[^\n*/]*"
)

OVERWRITTEN = r"^( *)(?!_\b)(\w+) = self\.\w+\(\w.*\)\n\1\2 = self\.\w+\((?!.*\b\2\b)\w"
"""Two lines that call a layer each, of which the second neither uses nor keeps what the first returned."""

_FAULTS = (
    Shown(
        "ddp-unused-parameters", "the output of a layer is overwritten before it is used", OVERWRITTEN,
        only=r"\bDDP\b|DistributedDataParallel",
    ),
    Shown(
        "unused-parameters", "the output of a layer is overwritten before it is used", OVERWRITTEN,
        but=r"\bDDP\b|DistributedDataParallel",
    ),
    Shown("step-missing", "named without parentheses, so never called", r"^ *[\w.]*\b(?:\w*loss\w*\.backward|"
        r"opt\w*\.step)$"),
    Shown("no-zero-grad", "named without parentheses, so never called", r"^ *[\w.]*\.zero_grad$"),
    Shown("no-zero-grad", "zero_grad() behind a condition that is never true", _NEVER + r".*zero_grad"),
    Shown("target-out-of-step", "the update is behind a condition that is never true", _NEVER + r".*(?:target|ema|"
        r"teacher)"),
    Shown("step-missing",
        "the step is behind a condition that is never true", _NEVER + r"(?!.*ema).*\b(?:opt\w*\.step|backward)\("),
    Shown(
        "step-missing", "training_step() never calls backward()",
        r"(?s:automatic_optimization = False.*def training_step|def training_step\(.*compute_loss)(?s:(?!backward|"
        r"\.step\().)*\n *return",
    ),
    Shown("step-missing", "updates are computed and never applied", r"updates, opt_state = (?s:.*)"
        r"\n *return", "apply_updates|apply_gradients"),
    Shown("step-missing", "engine.backward() without engine.step()", r"engine\.backward\(", r"\.step\b|nan|inf\b"),
    Shown("double-step", "training_step() steps, and so does the script", r"super\(\)\.training_step\((?s:.*)"
        r"optim\w*\.step\("),
    Shown("double-step", "update_params() steps, and so does the script", r"\.update_params\((?s:.*)"
        r"optim_wrapper\.step\("),
    Shown("double-step", "the same backward twice", r"^( *)([\w.]+)\.backward\(.*\)"
        r"\n\1\2\.backward\(", r"\bSAM\b|LBFGS"),
    Shown(
        "target-out-of-step", "the mean is assigned to a name, not to the weights",
        r"for .*(?:parameters\(|state_dict\(|variables).*:\n(?: .*\n)*? +(?:\w+ = .* \* .*\+|\w+ \* .* \+ )",
    ),
    Shown("target-out-of-step", "the optimizer trains the target, too", _BUILT + r".*\b\w*(?:target|teacher|ema)"
        r"\w*\.parameters\("),
    Shown(
        "params-twice", "a part is listed beside the whole that contains it",
        _BUILT + r".*(?:\b([\w.]+)\.(?:parameters\(\)|trainable_variables).*\b\1\.[\w.]+\.parameters\(|\b([\w.]+)"
        r"\.\w+\.parameters\(\).*\b\2\.parameters\()",
    ),
    Shown("params-twice", "groups are extended past add_param_group()", r"param_groups(?:\.append\(|"
        r"\[\d\]\['params'\](?: \+=|\.(?:extend|append)))"),
    Shown(
        "params-not-in-optimizer", "the model changes after the optimizer is built",
        _BUILT + r".*?\b(\w+)\.parameters\((?s:.*)\n *(?:\1\.[\w.]+(?:\[-?\d+\])? = (?:nn\.)?[A-Z]\w*\(|"
        r"\1 = [\w.]*(?:get_peft_model|convert_sync_batchnorm|prepare_qat)\()",
    ),
    Shown(
        "unregistered-module", "layers in a plain Python container",
        rf"\.{_NO_LAYERS}\w+ = (?:(?:list|tuple|reversed|dict)\()*(?:[\[{{]|\(\()(?:['\"]\w+['\"]: )?\(?{_LAYER}|\.\w+"
        rf"\.append\((?:nn\.(?!Param)|[A-Z]\w*(?:Block|Layer|Conv)\w*\()",
        r"ModuleList|ModuleDict|Sequential\(\*|add_module",
    ),
    Shown(
        "unregistered-module", "every forward call makes a new layer",
        r"def (?:forward|call)\((?s:(?!\n *def ).)*?(?:nn\.(?:Linear|Conv\dd|LSTM|GRU|Embedding)|layers\.(?:Dense|"
        r"Conv\w+))\(", "compact",
    ),
    Shown(
        "wrong-mode", "the model is in evaluation mode where it learns",
        r"^ *(?:self\.)?(?:model|net)\.eval\(\)\n(?s:(?!\.train\(|\ndef ).)*\.backward\(", "adversar|attack|"
        "saliency|gradcam", sure=False,
    ),
    Shown(
        "wrong-mode", "eval() in every epoch, and train() in none",
        r"for \w*epoch\w* in .*:\n(?s:(?!.*train\().)(?s:.*)\b(?:model|net)\.eval\(\)", sure=False,
    ),
    Shown(
        "wrong-mode", "a loaded model is tested without eval()",
        r"^.*\bload_state_dict\(.*$", r"\.eval\(|backward|optim|train\(",
        r"\n +(?:\w+ = )?\w+\(.*\)(?s:.){0,400}argmax\(",
        sure=False,
    ),
    Shown(
        "loss-broadcast", "outputs of shape (N, 1) against targets of shape (N,)",
        r"(?:Linear|Dense)\([^\n]*, 1\)+(?s:.)*(?:MSELoss|mse_loss|L1Loss|l1_loss|Huber|BCE)",
        r"squeeze|view\(|reshape|flatten|ravel|None\]|keepdim|\.T\b",
        r"\by\w* = [^\n]*(?:\[:, ?-?\d\]|torch\.(?:randn?|randint)\(\w+\))",
    ),
    Shown(
        "scaler-missing", "autocast to fp16, and the loss is not scaled",
        r"autocast\((?!.*(?:bf|cpu|enabled|dtype=\w*(?:d?type)\b))",
        r"scaler|scale\(|scale_loss|loss_scal|GradScal|accelerator|bfloat16|\bbf16\b|\bTPU\b|engine|smooth_l1|"
        r"targets? in", r"\.backward\(",
    ),
    Shown("scaler-without-fp16", "autocast to bf16 with a GradScaler", r"autocast\(.*(?:bfloat16|"
        r"bf16)", only=r"GradScaler\((?!.*enabled=False)|scaler\.scale\("),
    Shown("clip-before-unscale", "clipped before apex unscales", r"with amp\.scale_loss\(.*\n(?: .*\n)"
        r"*? +.*clip_grad\w+\((?!.*master_params)"),
    Shown(
        "metric-not-reset", "a sum that no epoch resets",
        r"^(\w*(?:loss|total|running|correct|sum)\w*) = 0(?:\.0)?\n(?:[^ \n].*\n)*?for \w*ep\w* in .*:\n(?!(?s:.*)"
        r"\n +\1 = 0)(?s:.*)\n {8,}\1 \+= (?s:.*)(?:print|log|add_scalar|append)\(.*\1",
    ),
    Shown(
        "accumulation-unscaled", "the loss is not divided by the number of batches",
        r"for (?:.*(?:micro|accum).*:\n(?: .*\n)*? +[\w.]*\.backward\(\)\n(?: .*\n)*[^ \n].*(?:clip|step\()|"
        r".*:\n(?: .*\n)*?( +)[\w.]*\.backward\(\)\n(?:\1.*\n)*?\1if .*%.*:\n +.*\.step\()",
        r"loss\w*\s*/|/=|/ ?\(?\w*(?:accum|micro|k\b)|accelerator\.|scale\(loss", sure=False,
    ),
    Shown("flipped-sign", "maximize=True with a loss", r"maximize=True", "reward|policy", "entropy|mse|criterion|loss"),
    Shown(
        "flipped-sign", "a value that should grow is minimized",
        r"^ *\w*loss\w* = (?:torch\.)?(?:min\(surr|\(?(?:torch\.|F\.)*log_softmax\([^()]*\) \* \w*(?:hot|target|"
        r"label)|gather\((?:\w+\.)*log_softmax|self\.crf\()(?!.*\* -1)",
        r"-\s*(?:\w*loss\b|torch\.min|crf)",
    ),
    Shown("flipped-sign", "the coefficient is returned as a loss", r"def \w*loss\w*\(.*\n *return \(?2(?:\.0)"
        r"? \* \(?\w+ \* \w+\)?\.sum\((?!.*1 -)", r"1\.?0? ?- ?\w*(?:dice|loss)"),
    Shown(
        "attention-unscaled", "scores that nothing scales go into the softmax",
        rf"softmax\({_QUERY_KEY}\)|^ *(\w+) = {_QUERY_KEY}$(?s:.{{0,200}}?)softmax\(\1\b|^ *(\w+)"
        rf" = {_QUERY_KEY}$(?s:.{{0,200}}?)\b\2\.softmax\(",
        r"scal(?:e|ing)\b|sqrt|normaliz|\*\* ?-|/ ?\w*temp",
    ),
    Shown(
        "labels-shuffled", "inputs and labels are shuffled apart",
        r"\b(?:shuffle|permutation)\((?:k\w, )?\w*(?:x|X|data|images|features)\w*\)(?s:.{0,40}?)\b(?:shuffle|"
        r"permutation)\((?:k\w, )?(?:len\()?\w*(?:y|Y|labels?|targets?|X)\w*\)|"
        r"_x\.shuffle\(.*_y\.shuffle\(|permutation\(len\(X\)\)\n(?s:.*)y\[np\.random\.permutation|"
        r"fit\(.*permutation\(", r"random_state|seed\(",
    ),
    Shown("duplicate-rows", "one object is appended again and again", r"^(\w+) = \{\}\nfor .*\n(?: .*\n)"
        r"*? +\1\[(?s:.*)append\(\1\)"),
    Shown("adapter-overwritten", "a new adapter over the loaded one", r"PeftModel\.from_pretrained\((?s:.*)"
        r"get_peft_model\(", "merge_and_unload"),
    Shown("eos-never-learned", "the end token "
        "is the padding, which the labels leave out", r"labels\w*'?\]?\[.*pad.*\] = -100", only=r"pad_token(?:_id)"
        r"?\s*=\s*[\w.]*eos_token"),
    Shown(
        "metric-hides-failure", "a step whose loss is NaN is skipped",
        r"if .*(?:isnan|isinf|isfinite|\b(\w+) != \1\b).*:\n(?: +print.*\n)? +(?:continue|return None|return$|"
        r"\w*loss\w* = )", sure=False,
    ),
)  # fmt: skip
_COMPILED = tuple((each, lazy_regex(each.code, re.MULTILINE)) for each in _FAULTS)


def faults_in_lines(lines: Sequence[str], source: str) -> list[CodeFault]:
    """The faults of all code that a text quotes, one of each cause."""
    text = "\n".join(lines)
    found: dict[str, CodeFault] = {}
    quoted = excerpts(lines) if "(" in text or "=" in text else []
    for excerpt in quoted:
        for cause, words, at, sure in _faults(ast.unparse(excerpt.tree), text):
            line = at.strip().split("\n")[0]
            fault = CodeFault(cause, f"{words}: {line[:120]}", f"{source}:{_line_of(line, excerpt)}", sure)
            if cause not in found or (sure and not found[cause].sure):
                found[cause] = fault
    for fault in _mechanisms(quoted, source):
        found.setdefault(fault.cause, fault)
    if len(found) > 1 and "no-zero-grad" in found and not found["no-zero-grad"].sure:
        del found["no-zero-grad"]  # a quoted line or two omit the obvious
    return list(found.values())


def _mechanisms(quoted: Sequence[Excerpt], source: str) -> Iterator[CodeFault]:
    """What all excerpts together show, as the parts of one program."""
    body: list[ast.stmt] = []
    lines: list[int] = []
    for excerpt in quoted:
        ast.increment_lineno(excerpt.tree, len(lines))
        body += excerpt.tree.body
        lines += excerpt.lines
    tree = ast.Module(body, [])
    course = course_of_parts(tree)
    certain = {each.cause for each in faults_of_parts(course, whole=True) if each.sure}
    for each in faults_of_parts(course, whole=False):
        line = lines[min(each.line, len(lines)) - 1]
        fact = each.sure and each.cause in certain
        yield replace(each, sure=False, mild=False, fact=fact, line=line).told(source)


def _faults(code: str, text: str) -> Iterator[tuple[str, str, str, bool]]:
    """``(cause, words, code, sure)`` of each fault."""
    for shown, pattern in _COMPILED:
        match = pattern.search(code)
        if match and re.search(shown.only, text) and not re.search(shown.but, text, re.IGNORECASE):
            yield shown.cause, shown.text, match[0], shown.sure
    for scope in re.split(r"^ *def .*\n", code, flags=re.MULTILINE):
        yield from _order(scope, text)


_CALLS = {
    "backward": lazy_regex(r"\bbackward\("),
    "step": lazy_regex(r"\b(?:\w*(?:opt|solver)\w*|scaler|engine)\.step\("),
    "zero": lazy_regex(r"\bzero_grads?\(|\bclear_?grad\w*\(|\.grad(?:\.data)? = |\.grad(?:\.data)?\.zero_\("),
}
_DONE_ELSEWHERE = lazy_regex(r"zero|autocast|scaler|\.grad\b.{0,9}=|accum|DataModule|Trainer\(|engine|clear_?grad|%")
_OWNER = lazy_regex(r"(\w+)\.(?:zero_grad|step)\((\w*)")
_ANOTHER = lazy_regex(r"opt|net|gen|disc|critic|actor|\b[DG]\b", re.IGNORECASE)


def _order(scope: str, text: str) -> Iterator[tuple[str, str, str, bool]]:
    """Backward, step and zero_grad in the wrong order, or one of them missing."""
    calls = [(kind, line) for line in scope.split("\n") for kind, call in _CALLS.items() if call.search(line)]
    kinds = [kind for kind, _ in calls]
    for (first, cleared), (second, stepped) in itertools.pairwise(calls):
        shown = "backward" in kinds or ("if " in scope and "%" in scope)
        if (first, second) == ("zero", "step") and shown and _same(cleared, stepped) and "clos" not in stepped:
            yield "cleared-before-step", "gradients are cleared, and the step finds none", cleared, True
    if kinds in (["step", "backward", "zero"], ["step", "zero", "backward", "zero"]):
        yield "cleared-before-step", "gradients are cleared right after backward()", calls[-1][1], True
    if kinds == ["backward", "zero"] and "return" in scope and re.search(r"\.step\(", text):
        yield "cleared-before-step", "gradients are cleared right after backward()", calls[-1][1], True
    if {"backward", "zero"} == set(kinds) and re.search(r"^ *for ", scope, re.MULTILINE) and "step" not in text:
        yield "step-missing", "a loop without optimizer.step()", calls[0][1], True
    if kinds == ["zero", "step"] and "backward" not in text and re.search(r"loss\w*\(", scope):
        yield "step-missing", "a step without backward()", calls[-1][1], True
    whole = re.search(r"^ *\w+ = \w.*\(", scope, re.MULTILINE)
    if {"backward", "step"} == set(kinds) and whole and not _DONE_ELSEWHERE.search(text):
        yield "no-zero-grad", "backward() and step() without zero_grad()", calls[-1][1], False


def _same(cleared: str, stepped: str) -> bool:
    """Whether both calls are of one optimizer: a GAN clears another's."""
    zero, step = _OWNER.search(cleared), _OWNER.search(stepped)
    if zero is None or step is None:
        return True
    owner = step[2] if step[1] == "scaler" and step[2] else step[1]
    return zero[1] == owner or not _ANOTHER.search(zero[1])


def _line_of(code: str, excerpt: Excerpt) -> int:
    """Where the statement stands that this line of code is of."""
    for node in ast.walk(excerpt.tree):
        if isinstance(node, ast.stmt) and ast.unparse(node).startswith(code):
            return excerpt.line_of(node)
    return excerpt.lines[0]
