"""Inputs or targets are far from unit scale.

## What it means
Networks are initialized and learning rates are tuned for inputs and targets of about zero mean and unit spread.
Features of 1e4, prices in cents, pixels of 0 to 255 or timestamps multiply every gradient by their size: the first
loss is huge, updates overshoot, and training diverges or crawls along one feature.

## Why it happens
- Raw tables: salaries, ages and dates together; no standardization.
- Pictures without `ToTensor()` (0 to 255) or without the mean and spread of the pre-trained model.
- Regression targets in their natural unit: a house price of 3e5 gives a squared error of 1e11.
- A scaler fitted on one split and not applied to another, or applied twice; features of constant value divided by a
  spread of 0.
- Audio as 16-bit integers; time series with a trend.

## How to recognize it
- A first loss of thousands and more with a squared error, or `inf` in fp16 at once.
- The loss falls from 1e9 to 1e5 and is still useless, while its square root is the spread of the targets.
- Per feature: `x.mean(0)`, `x.std(0)`; anything with |mean| or spread above about 10, or below 0.01, needs scaling.

## How to fix it
- sklearn `StandardScaler().fit(train)`, applied to all splits; targets too, and inverted after prediction; `log1p`
  for prices and counts.
- torchvision: `ToTensor()` and `Normalize(mean, std)`, or `weights.transforms()` of the pre-trained weights;
  transformers: the model's own `AutoImageProcessor` or `AutoFeatureExtractor`.
- Time series: scale per series (reversible instance normalization), differences for trends.
- Audio: float in -1 to 1 (`waveform / 32768`).
- As a first aid `nn.BatchNorm1d(features)` as the first layer, and a Huber loss for targets with outliers.

## When it is a false alarm
Token ids are not magnitudes. Summed losses (over pixels, or in sum reduction) are large by their number of terms.
Trees do not mind scales.
"""

import math
import re

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.rules.facts import Facts, Line
from stayfinite.rules.known import is_on
from stayfinite.rules.rule import AGAINST, FAIR, HINT, STRONG, Clue, Clues, Rule, quote, reaches

_REGRESSION = (
    r"\bmse\b|mse_?loss|mean[_ ]?squared|\bregress|\bmae\b|l1_?loss|smooth_?l1|huber|\brmse\b|time[- _]?series|"
    r"forecast|\bprice"
)
_RAW = (
    r"\b(?:target|input|feature|label|control)s?[ _](?:range|min|max|std)\b\W{1,3}-?\d{3,}|"
    r"\bno (?:rescal\w+|normali[sz]ation of (?:the )?(?:inputs?|images?|data))\b|"
    r"\b(?:without|not) (?:re)?scal(?:ing|ed)\b|\bun(?:re)?scaled (?:input|image|feature|target|pixel|data)\w*|"
    r"raw (?:pixel|feature|value|input|target|price|column|data|table)s?\b|\b0 ?(?:-|to|\.\.) ?255\b|"
    r"\b(?:dataset|mnist|cifar\w*|train_?set|train_data)\.data\b(?!.*(?:/ ?255|div)).{0,80}\.float\(\)|"
    r"values? (?:up to|of|around|in the) (?:\d{4,}|thousands|millions|1e\d)|"
    r"\b(?:y values|targets?|prices|features|inputs)\b[^.;\n]{0,40}\b(?:are|is|have|has) (?:\w+ )?"
    r"(?:very|too|extremely|quite|really) (?:high|large|big)\b"
)
_AS_READ = r"\bImageDataGenerator\b|\bimage_dataset_from_directory\b|\bflow_from_(?:directory|dataframe)\b"
"""Keras' readers of images, which leave values as they are where nothing else is asked of them."""
_SCALED = (
    r"rescale|rescaling|\b255\b|preprocess|normali[sz]|standardi[sz]|ToTensor|to_tensor|featurewise|samplewise|"
    r"per_image|std\b|convert_image_dtype"
)
_SCALES = (
    "scale", "normalize", "normalise", "standardize", "standardise", "do_normalize", "scaling", "normalization",
    "scale_data", "normalize_inputs", "normalize_targets", "scaler", "input_norm", "norm_data",
)  # fmt: skip
_NUMBER = lazy_regex(r"~?(-?\d[\d,]*\.?\d*(?:e[-+]?\d+)?)", re.IGNORECASE)
HUGE = 1e9
"""No units of a target give such an error."""
LARGE = 1e3
"""Standardized targets never start with a loss above this."""


def judge(facts: Facts) -> Clues:
    """Clues: measured scales, a huge first loss in a regression, or notes that nothing was scaled."""
    yield from reaches(facts, "data.input_scale", 30, "inputs of size {:.3g} (expected about 1)", proof=100)
    symptoms = facts.symptoms
    start = symptoms.first_loss
    raw = facts.mentioned(_RAW) or _switched_off(facts)
    sick = (
        symptoms.bad > 0
        or symptoms.bad_losses > 0
        or symptoms.bad_evals > 0
        or symptoms.explodes
        or symptoms.diverges
        or symptoms.flat
        or bool(symptoms.lost_metrics)
        or (symptoms.crash is not None and raw is not None)
        or (start is not None and start >= LARGE)
    )
    if not sick or symptoms.healthy:
        return
    yield from quote(raw, STRONG, "the data is not scaled: {:.100}")
    yield from quote(_described(facts), STRONG)
    if raw is None and facts.mentioned(_SCALED) is None:
        yield from quote(
            facts.mentioned(_AS_READ), STRONG, "images are read from 0 to 255, and nothing scales them: {:.80}"
        )
    regression = facts.mentioned(_REGRESSION)
    if start is not None and start >= LARGE:
        text = f"the first loss is {start:.4g}"
        still = symptoms.last_loss is not None and symptoms.last_loss <= 1.5 * start and not symptoms.bad
        weight = (FAIR + HINT if still else FAIR) if regression is not None else 0.5
        yield Clue(text, weight, symptoms.at("start"))
    lost_first = symptoms.from_start and symptoms.bad_losses > 0 and facts.context.half is None
    if regression is not None and raw is None and lost_first:
        text = "a squared error is NaN or inf from the first logged point"
        yield Clue(text, FAIR + HINT, symptoms.at("first_bad"))
    yield from quote(_huge_error(facts), STRONG)
    if regression is not None and (raw is not None or (start is not None and start >= LARGE)):
        yield Clue(f"a regression ({regression.text.strip()[:80]})", HINT + 0.5, regression.where, risk=True)
    if facts.context.half is not None and raw is None:
        yield Clue(f"fp16 explains most of it ({facts.context.half.text})", AGAINST, facts.context.half.where)


def _described(facts: Facts) -> Line | None:
    """A printed table of columns with their extremes, one of which is far from unit scale."""
    extremes: list[int] = []
    for where, text in facts.lines:
        cells = [cell.strip() for cell in re.split(r"\||\t|\s{2,}", text.strip().strip("|"))]
        if (found := [at for at, cell in enumerate(cells) if cell.lower() in ("min", "max")]) and len(cells) > 2:
            extremes = found if cells[0].lower() in ("", "feature", "column", "input", "name", "variable") else []
            continue
        numbers = [_NUMBER.fullmatch(cells[at]) for at in extremes if at < len(cells)]
        values = [abs(float(number[1].replace(",", ""))) for number in numbers if number is not None]
        if len(values) == len(extremes) > 0 and max(values) >= LARGE:
            return Line(where, f"column {cells[0][:40]} reaches {max(values):,.6g}")
    return None


def _huge_error(facts: Facts) -> Line | None:
    """An error of a regression that is absurd where it is first logged."""
    for run in facts.runs:
        for name, track in run.metrics.items():
            first = track.values[0]
            if re.search(r"(?:^|_)(?:r?mse|mae)(?:$|_)", name) and math.isfinite(first) and first >= HUGE:
                return Line(run.where(track.lines[0]), f"the first {name} is {first:.3g}")
    return None


def _switched_off(facts: Facts) -> Line | None:
    """A setting that disables scaling."""
    for setting in facts.settings.all(*_SCALES):
        if setting.value is not None and is_on(setting.value) is False:
            return Line(setting.where, f"{setting.name}: {setting.value}")
    return None


RULE = Rule(
    code="SF309",
    severity="warning",
    fix=(
        "standardize inputs and targets with the training set's mean and std (StandardScaler, Normalize), log1p for "
        "prices and counts"
    ),
    beats=("nan-loss", "bad-init", "loss-diverging", "lr-too-high"),
    observes={"data.input_scale": "the largest of |mean| and spread over the input features"},
    warns={
        r"obs returned by the `?\w+\(\)`? method is not within the observation space": STRONG + FAIR,
    },
)
