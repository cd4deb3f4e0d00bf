"""A setting has an unknown name.

## What it means
A flag or key is called almost like one that exists, and does not exist itself. Where arguments are checked the launch
ends at once. Where a file is merely read, nothing is reported: the misspelled line has no effect, the default is in
force, and a run of days trains with a learning rate, a length or an unintended precision.

## Why it happens
A slip (`learing_rate`, `lr_schedular_type`), a name from another framework (`max_grad_norm` for Lightning's
`gradient_clip_val`), a plural (`max_step`), or `-` in place of `_` where the parser takes only one of them.

## How to recognize it
- `error: unrecognized arguments: --learing_rate`; `got an unexpected keyword argument`.
- Nothing at all, and a printed config that shows the default.
- Before the launch: `stayfinite check train.yaml` names the setting and what was probably meant.

## How to fix it
Write the name that is meant. In scripts of one's own, let the parser refuse what it does not know: `parse_args()` and
not `parse_known_args()`; `HfArgumentParser.parse_yaml_file(path)` without `allow_extra_keys=True`; a dataclass and not
a plain dict.

## When it is a false alarm
A program of one's own may have a setting whose name is close to another one's by chance.
"""

from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import FAIR, HINT, PROOF, STRONG, Clues, Rule, quote

_SETTINGS = r"\w*(?:Arguments|Args|Config|Configuration|Settings|Trainer)"
_REFUSED = rf"\b{_SETTINGS}(?:\.__init__)?\(\) got an unexpected keyword argument"
_REFUSED_UNNAMED = r"typeerror: __init__\(\) got an unexpected keyword argument"
"""Python before 3.10 does not name the class; the traceback shows the call."""


def judge(facts: Facts) -> Clues:
    """Clues: names close to known ones in a plan, or the parser's error in a log."""
    refusal = facts.said(
        r"error: (?:unrecognized arguments|argument \S+: invalid choice)|"
        r"some specified arguments are not used by the HfArgumentParser|key '[\w.]+' (?:is )?not in |"
        r"could not override '|extra (?:inputs|fields) (?:are )?not permitted|\bunknown (?:config\w* )?"
        r"(?:keys?|options?|arguments?|fields?|settings?)\b"
    )
    yield from quote(refusal, STRONG + 1.0)
    yield from quote(facts.said(_REFUSED), PROOF)
    if facts.said(rf"\b{_SETTINGS}\($") is not None:
        yield from quote(facts.said(_REFUSED_UNNAMED), STRONG + HINT)


RULE = Rule(
    code="SF218",
    severity="warning",
    beats=("environment",),
    fix="correct the option name",
    plans={"plan.unknown_settings": PROOF},
    says={
        r"no parameters found matching the pattern": STRONG + FAIR,
        r"\bunknown \w+ (?:mode|type|name|value)\b.{0,40}choose (?:between|from|one of)": PROOF,
        r"is not a valid value for \w+$": PROOF,
        r"early stopping conditioned on metric .{0,60}which is not available": STRONG + FAIR,
    },
    warns={
        r"found unsupported keys in the lr scheduler dict": STRONG + FAIR,
    },
)
