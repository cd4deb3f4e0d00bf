"""A feature or target is constant.

## What it means
A column with one value carries no information. Harmless alone, it becomes NaN as soon as something divides by its
spread, and it is often the trace of a mistake: a column that was read wrongly, a label that was lost.

## Why it happens
- Standardization `(x - mean) / std` with `std = 0`: 0 divided by 0.
- A join or a parser filled a column with its default; all dates became 1970; all pictures are the same grey.
- A series that is constant within a window: reversible instance normalization, correlation and R2 divide by its
  spread.
- One-hot columns of categories that this split does not have.
- A target that is constant in a batch: R2, Pearson and AUC are undefined there.

## How to recognize it
- `RuntimeWarning: invalid value encountered in divide` during the preparation, then NaN at the first step.
- `ConstantInputWarning: An input array is constant; the correlation coefficient is not defined`.
- `df.nunique() == 1`, `x.std(0) == 0`.

## How to fix it
- Drop it: sklearn `VarianceThreshold()`, or `df.loc[:, df.nunique() > 1]`.
- Divide by `std.clamp(min=1e-6)` or `(x - mean) / (std + eps)` with an `eps` that fits the dtype; sklearn's
  `StandardScaler` does so automatically.
- Windows of a series: scale by the whole series, or add an `eps` of about 1e-5 to the spread.
- Find out why it is constant before dropping it.

## When it is a false alarm
A bias column of ones and padding columns are constant on purpose.
"""

from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import FAIR, HINT, STRONG, Clue, Clues, Rule, quote

_BY_SPREAD = (
    r"/ ?\(?(?:np\.|torch\.|self\.)?\w*(?:std|sigma|scale_|stddev|variance)\w*\b|"
    r"/ ?\(?.{0,30}max\w*.{0,12}- ?.{0,20}min|\.std\(|StandardScaler|MinMaxScaler"
)
"""A standardization: a constant column has a standard deviation of 0."""


def judge(facts: Facts) -> Clues:
    """Clues: measured columns, or warnings of zero deviation followed by NaN."""
    if facts.symptoms.healthy:
        return
    divided = facts.said(r"invalid value encountered in (?:true_)?divide|divide by zero encountered")
    symptoms = facts.symptoms
    sick = symptoms.bad > 0 or symptoms.bad_losses > 0 or symptoms.bad_evals > 0
    if divided is not None and sick:
        yield Clue(f"{divided.text}, then NaN or inf", FAIR, divided.where)
        if symptoms.from_start:
            yield Clue("from the first point on", HINT, symptoms.at("first_bad"))
        yield from quote(facts.mentioned(_BY_SPREAD), 3.5, "the divisor is a standard deviation: {:.100}")


RULE = Rule(
    code="SF311",
    severity="warning",
    fix="drop constant columns, or divide by std.clamp(min=1e-6); first find out why they are constant",
    proofs={
        # Names or numbers of input columns with one value, a list.
        "data.constant_features": "constant columns: {}",
    },
    prior=-4.5,
    beats=("bad-data-row", "nan-loss"),
    warns={
        r"\bfeatures \[[\d ]+\] are constant": STRONG + FAIR,
    },
)
