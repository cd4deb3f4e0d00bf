"""A row of the data is NaN, inf, corrupt or unusable.

## What it means
One or a few examples hold something that turns the loss or its gradient into NaN or infinity, whatever the weights
and the precision: a NaN in a feature, a picture that is half a file, a box of width 0, a recording shorter than its
transcript. The step that meets them is lost; if its update is applied, every later step is lost too.

## Why it happens
- Missing values: an empty cell of a table is NaN after `read_csv`; a gap of a time series; `log` or a division by a
  standard deviation of 0 in the preparation.
- Detection: boxes with `xmax <= xmin`, of size 0 after a resize, beyond the picture, or counted from 1 where 0 is
  meant. The regression target is `log(w / anchor)`: a width of 0 makes it -infinity, a negative one NaN.
- Speech with CTC: after the encoder's down-sampling the audio has fewer frames than the transcript has symbols. No
  alignment exists, so the loss is infinite. Empty transcripts, silent or 0-second files and wrong sampling rates do
  the same.
- Corrupt files: truncated JPEG, a download that holds an HTML error page, half a line of JSON.
- Sentences of absurd length, labels of 1e38, a placeholder such as -9999 among temperatures.

## How to recognize it
- NaN comes suddenly, after good steps and without a climb of the loss or of the gradient norm, in fp32 or bf16 as
  well.
- It comes back at the same place of the data with another learning rate, and moves when the shuffle's seed changes.
- Only some losses are NaN (the box regression, CTC) while the others stay ordinary.
- Messages of the loader or of the loss: `samples got nan grad`, `Found invalid box`, `image file is truncated`,
  `Input contains NaN`; for CTC `No valid path found` or a loss of exactly infinity.
- numpy's `RuntimeWarning: invalid value encountered in log` (or `divide`, `subtract`): numpy is not part of the graph,
  it prepares inputs and targets.
- `stayfinite` names the rows: run again with `Guard(..., forward=...)` and look at the incident.

## How to fix it
- Find it: loop once over the dataset with `assert torch.isfinite(x).all(), index` for inputs and targets.
- Repair or drop: `df.dropna()` or a fill; `dataset.filter(...)` in datasets; for boxes keep those with `xmax > xmin`
  and `ymax > ymin` inside the picture, after the augmentation too.
- CTC: `nn.CTCLoss(zero_infinity=True)`; ESPnet `ctc_conf: ignore_nan_grad: true`; transformers
  `ctc_zero_infinity=True` in the config of Wav2Vec2; better, drop rows with fewer frames than symbols.
- transformers replaces NaN losses in its log: `logging_nan_inf_filter=False` shows them.
- Do not train on: weights that took such a step are NaN. Go back to the last good checkpoint.

## When it is a false alarm
When the same batch is finite on good weights, the weights were broken before (learning rate, precision), and the row
is only where it showed.
"""

import math
import re

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.rules.data.remarks_on_data import impossible_alignment, remarks
from stayfinite.rules.facts import Facts, Line
from stayfinite.rules.precision.half_range import half_of
from stayfinite.rules.rule import AGAINST, FAIR, HINT, PROOF, REFUTED, STRONG, Clue, Clues, Rule, quote
from stayfinite.rules.signs.aftermath import went_on
from stayfinite.rules.signs.going_bad import at_first_step, weights_survived
from stayfinite.rules.signs.post_training import samples
from stayfinite.rules.signs.witness import not_finite

_ROWS = r"(?:batch|inputs?|data|images?|imgs?|labels?|targets?|feats?|features?|audio|mels?|boxes|gt)"
_REFUSED = (
    r"length of all samples has to be greater than 0|no valid path found|"
    r"not enough time for target transition|labels? length is zero|ignore_longer_outputs_than_inputs|"
    r"expected input_lengths to have value at most|ignoring corrupt|out of bounds coordinates|negative label values|"
    r"samples? got nan grad|returning nan value instead of ctc|no (?:valid )?(?:ctc )?alignment|"
    r"bounding boxes should have positive height and width|found inval?id box|degenerate box|invalid bounding box|"
    r"boxes[02-9]?\[:, 2:\] >= boxes|"  # boxes1 are the predicted ones
    r"\b(?:batch|data\w*|sample|x|image|audio|feature|target|label|row|column|array|frame|series|observation|"
    r"input|y|file)s?\b.{0,20}\bcontains? (?:a |some |any )?(?:nan|inf)|"
    rf"(?:\bis_?nan\(\W*{_ROWS}\b|\b{_ROWS}\b[^;=]{{0,40}}\bis_?nan\(|\bnan in {_ROWS}\b)"
    r".{0,40}[:=>]\s*(?:tensor\()?True|"
    r"\bnan (?:values? )?(?:found )?in (?:the )?(?:input|batch|data|sample|feature|image|audio|target|"
    r"label)|"
    r"image file is truncated|cannot identify image file|UnidentifiedImageError|broken data stream|"
    r"Premature end of JPEG|Corrupt JPEG|libpng error|OSError: unrecognized data stream|DecompressionBomb|"
    r"corrupt(?:ed)? (?:image|audio|sample|file|record|row|data)|LibsndfileError|"
    r"Error opening .{0,80}\.(?:wav|flac|mp3)|moov atom not found|Invalid data found when processing input|"
    r"(?:audio|input|feats?|utterance|sequence) (?:length )?(?:is )?(?:too short|shorter than)|JSONDecodeError|"
    r"zero-(?:size|length) (?:audio|image|array|row|sample)|"
    r"sequence_length\(\d+\) ?<= ?\d+|saw a non-null label|cannot convert (?:float )?(?:nan|infinity)|"
    r"could not convert string to float|"
    r"found array with (?:nan|inf)|"
    r"(?:image|img|sample|clip|video|frame)\w* (?:is|was) (?:None|empty|corrupt\w*|unreadable)|"
    r"cv2\.error.{0,80}empty\(\)|"
    r"(?:failed|unable|could not|cannot|error) (?:to )?(?:load|read|open|decod)\w*(?:ing)? .{0,60}\.(?:jpe?g|png|wav|"
    r"flac|mp[34]|npy|npz|tiff?|parquet|avi)\b|"
    r"BadZipFile|zlib\.error|EOFError: Ran out of input|broken PNG|not a (?:PNG|JPEG) file|invalid JPEG data|"
    r"truncated (?:file|image|record|jpeg|png)|DataLossError|corrupted record|parquet magic bytes|ArrowInvalid|"
    r"error tokenizing data|JSON parse error|(?:nan|inf\w*) (?:or infinity|or a value too large)|"
    r"does not accept missing values|kernel size can'?t be greater than actual input size|output size is too small|"
    r"padding size should be less than the corresponding input|stack expects each tensor to be equal size|"
    r"batch must contain tensors.{0,80}found <class 'nonetype'>|"
    r"doesn'?t match the broadcast shape \[3,|unsupported image (?:type|mode)|could not find a backend to open|"
    r"expected x_max|expected [xy]_\w+ for bbox|bbox\b.{0,60}\bto be in the range \[0|x_max is less than|"
    r"box(?:es)? (?:with|of|has|have) (?:zero|negative|non-?positive|no) (?:area|width|height|size)"
)
_MEASURED = (
    r"\b(?:time[- _]?series|regression|tabular|sensors?|EEG|weather|traffic|climate|netcdf|air quality|time-?moe|"
    r"nemo|manifests?|train_ds|icefall|espnet|wav2vec2?|lidar|chronos|patchtst|informer|gluonts|neuralforecast|"
    r"pytorch[-_]forecasting|ts(?:ai|tensor|standardize|datasets?)|audio|voice|ASR|CTC|WER)\b|"
    r"(?:\b|_)ctc(?:_|\b)|(?:\b|_)(?:tacotron|fastspeech|glow-?tts|waveglow|hifi-?gan|vits\b|tts\b|vocoder|mfa\b)|"
    r"\b(?:forecast|speech|spectrogram|mel[-_ ]spec|common[-_ ]?voice)|"
    r"\b(?:aishell|thchs|librispeech|wenetspeech|gigaspeech|tedlium|switchboard|timit|ljspeech|vctk|st-?cmd|"
    r"voxceleb)\w*|"
    r"\.csv\b|\bread_(?:csv|excel|table|parquet|hdf|sql)\b|\.iloc\[|\bDataFrame\b|"
    r"\b(?:stock|finance|financial|qlib|alpha(?:158|360)|crypto|forex|electricity|medical records|EHR|MIMIC|clinical|"
    r"genom\w+|gene expression|single[- ]cell|protein|molecul\w+|ECG|EMG|IMU|satellite|remote sensing|hyperspectral|"
    r"depth maps?|density maps?)\b"
)
_COLLECTED = (
    r"\b(?:data(?:set)?: ?(?:my |our )?(?:own|custom|private|self|in-?house|internal)|VOC (?:format|style)|"
    r"(?:own|custom|in-?house|private|self-?made) (?:[\w-]+ )?(?:data(?:set)?|annotations?|recordings?|images)\b|"
    r"annotations?\b|bounding box|DICOM\b|point ?clouds?\b|labelImg\b|roboflow\b|labelme\b|cvat\b|"
    r"(?:own|my|our|custom|self-?made) (?:[\w-]+ ){0,2}(?:files?|csv|table|preprocess\w*|pre-processing|loader|corpus|"
    r"recordings?|features?|labels?|masks?|ground truth|collected)\b|"
    r"preprocess\w*: ?(?:own|custom)|own preprocess\w*|"
    r"(?:dataset|data)\w* (?:I|we) (?:made|created|collected|labell?ed|built)|scraped|crawled)"
)
_CONTROL = (
    r"(?:trains?|works?|runs?|is|are|was) (?:fine|well|ok|okay|normal\w*|good)\b.{0,40}\b(?:with|on|using|for)\b.{0,40}"
    r"\b(?:same|other|another|public|original|official|sample|librispeech|coco|imagenet)\b|"
    r"\b(?:voc|coco|imagenet|kitti|librispeech|cityscapes|mnist|cifar\w*|wider\w*|demo|sample|toy|official) "
    r"(?:\w+ )?(?:itself |data |dataset )?(?:trains?|works?|is fine|is ok|converges?)\b|"
    r"\bonly (?:with|on) (?:my|our|this|the new|one|some) (?:own )?(?:data|dataset|file|row|part)"
)
_SUSPECTED = (
    r"\bnan\b(?! gradient).{0,30}\b(?:in|rows?)\b.{0,30}\b(?:data|row|input(?! gradient)|feature|csv)|"
    r"empty (?:row|line|transcript|text)s?\b|"
    r"\ball[- ]?zeros?\b|"
    r"\b(?:observations?|inputs?|data|rows?|features?|labels?|targets?|batch(?:es)?|images?) (?:contains?|has|have|"
    r"with) (?:a |some |many )?(?:nan|inf)|"
    r"fill_missing_dates ?= ?True|\b(?:beyond|outside) (?:of )?(?:the )?image|"
    r"\b(?:width|height|area|length|duration)s? (?:of|is|are|=|==) ?(?:0|zero)\b"
)
_CHECKED = (
    r"\b(?:inputs?|data|images?|labels?|batch(?:es)?|features?)\b[^.;\n]{0,24}\b(?:is|are|was|were|"
    r"looks?) (?:all |both |completely )?"
    r"(?:normal|fine|finite|ok|okay|correct|clean|good)\b|"
    r"\b(?:no|without|not (?:any|a single)|n't any|free of) (?:nans?|nulls?|missing values?)(?: values?)? (?:in|"
    r"among) (?:the |my |our )?"
    r"(?:inputs?|data\w*|images?|features?|labels?|targets?)"
)
_MERE_WARNING = r"\A(?!\W*E\b)(?:\W*W\b|(?s:.*?)\b(?:warn|ignor|skipp|dropp))"
"""What a logger marks as an error is none."""
_SKIPPED = r"grad norm is nan\. ?(?:skipping|do not) updat"
_PAIR = lazy_regex(
    r"\b(\w{1,40}(?:[ _][Ll]oss)?)\s?[:=]?\s{1,4}\(?(nan|-?inf|-?\d+\.?\d*(?:e[-+]?\d+)?)\b", re.IGNORECASE
)
_REGRESSES = lazy_regex(
    r"(?:box|bbox|reg|regression|loc|localization|iou|dfl|ctc|l1|[wh]h|size|offset)(?:[_ ]loss)?$", re.IGNORECASE
)
_CLASSIFIES = lazy_regex(
    r"(?:cls|class|classifier|classification|ce|conf|obj|objectness|att|hm|heatmap)(?:[_ ]loss)?$", re.IGNORECASE
)
_COUNT = lazy_regex(r"\d+(?:\.\d+)?(?:e\+\d+)?")
_MAPPED = r"\b\w*(?:label|target|y)\w*\s*=\s*[\w.\[\]'\"]+\.map\("
_IN_LOADER = r"\bin (?:__getitem__|pull_item|load_image|collate_fn|default_collate)\b"
ORDINARY = 100.0
"""A loss term that never exceeded this did not explode."""


def judge(facts: Facts) -> Clues:
    """Clues: messages of loader and loss; else a sudden NaN without a climb, with external data."""
    yield from _observed(facts)
    refused, skipped = facts.said(_REFUSED), facts.said(_SKIPPED)
    if refused is not None:
        yield Clue(refused.text, STRONG + 1.0, refused.where)
    elif skipped is not None:
        yield Clue(f"{skipped.text} (in speech training mostly a row that CTC cannot align)", FAIR, skipped.where)
    symptoms = facts.symptoms
    impossible = list(impossible_alignment(facts))
    sick = bool(
        symptoms.bad
        or symptoms.bad_losses
        or symptoms.bad_evals
        or impossible
        or facts.said(r"(?<![\w.])nan(?!\w)") is not None
    )
    yield from quote(_missing(facts), PROOF)
    only_evaluation = symptoms.bad_evals > 1 and not (symptoms.bad or symptoms.bad_losses)
    if only_evaluation and (mapped := facts.mentioned(_MAPPED)) is not None:
        yield Clue(
            f"map() returns NaN for keys missing from its table: {mapped.text.strip()[:100]}",
            STRONG + HINT,
            mapped.where,
        )
    if weights_survived(facts):
        yield Clue("NaN comes and goes: it depends on the batch", 2.8, symptoms.at("first_bad"))
    told = refused or skipped
    if (
        symptoms.healthy
        and not impossible
        and (not_finite(facts) is None or (told is not None and went_on(facts, told)))
    ):
        yield Clue("training continues normally", REFUTED, symptoms.at("start"))
    lone = refused is not None and not symptoms.trouble and not sick
    if lone and refused is not None and re.search(_MERE_WARNING, refused.text, re.IGNORECASE):
        yield Clue("a warning without consequences", REFUTED, refused.where)
    if refused is None and symptoms.crash is not None and (inside := facts.said(_IN_LOADER)) is not None:
        yield Clue(f"the error is raised where a row is read: {inside.text.strip()[:100]}", STRONG, inside.where)
    if refused is None and (not sick or symptoms.settles):
        return
    yield from impossible
    if refused is None:
        yield from remarks(facts)
    if any(map(samples, facts.runs)):
        yield Clue("the policy trains on its own answers: tokens are never NaN", AGAINST)
    for pattern, text, weight in (
        (_SUSPECTED, "the data is suspected", 3.0),
        (_CONTROL, "other data is fine", 2.5),
        (_MEASURED, "the inputs are raw measurements", FAIR if refused is None else HINT),
        (_COLLECTED, "data collected by hand", _weight_of_own_data(facts)),
    ):
        found = facts.mentioned(pattern)
        if found is not None:
            yield Clue(f"{text}: {found.text.strip()[:100]}", weight, found.where)
    measured = facts.mentioned(_MEASURED)
    if measured is not None and symptoms.from_start and refused is None and half_of(facts) is None:
        yield Clue("no value is finite", 1.3, symptoms.at("first_bad"))
    yield from quote(facts.mentioned(_CHECKED), AGAINST, "reported: the inputs are fine ({:.100})")
    yield from _course(facts)


def _missing(facts: Facts) -> Line | None:
    """The counts of pandas' describe(), where columns have fewer values than there are rows."""
    for where, text in facts.lines:
        words = text.split()
        if len(words) > 2 and words[0] == "count" and all(map(_COUNT.fullmatch, words[1:])):
            counts = [float(word) for word in words[1:]]
            # A count in powers of ten is rounded.
            exact = [count for count, word in zip(counts, words[1:], strict=True) if "e" not in word]
            if len(exact) > 1 and 0 < min(exact) < max(exact):
                return Line(
                    where, f"a column has {min(exact):,.0f} values, another {max(exact):,.0f}: the rest are NaN"
                )
    return None


def _weight_of_own_data(facts: Facts) -> float:
    """Unpublished data is the first suspect, especially if the first numbers are already bad."""
    if half_of(facts) is not None or facts.symptoms.explodes:
        return HINT
    return 3.2 if facts.symptoms.from_start else 1.7


def _course(facts: Facts) -> Clues:
    symptoms, context = facts.symptoms, facts.context
    place = symptoms.at("first_bad")
    part = _only_regression(facts)
    if part is not None:
        yield Clue(part, 3.0, place)
    if symptoms.explodes:
        yield Clue("loss or gradient norm climbed before", AGAINST, symptoms.at("largest_loss"))
    elif symptoms.good_before >= 3:
        steps = "suddenly" if symptoms.good_after == 0 else "now and then"
        yield Clue(f"NaN or inf {steps} after {symptoms.good_before} finite losses, without a climb", 1.5, place)
    half = half_of(facts)
    told_of_data = facts.mentioned(_COLLECTED) or facts.mentioned(_MEASURED)
    if half is None and told_of_data is None and at_first_step(facts):
        yield Clue("NaN or inf before any update, and no fp16", 1.5 * HINT, place)
    if half is not None:
        yield Clue(f"fp16 explains more ({half.text})", -1.0, half.where)
    elif context.not_half is not None and symptoms.bad:
        yield Clue(f"not caused by fp16 ({context.not_half.text})", 0.5, context.not_half.where)


def _only_regression(facts: Facts) -> str | None:
    """Reports a non-finite regression term next to ordinary classification terms."""
    values: dict[str, list[float]] = {}
    for run in facts.runs:
        for name, track in run.metrics.items():
            values.setdefault(name, []).extend(track.values)
    for message in facts.all_said(r"[:=\s(](?:nan|inf)\b"):
        for name, number in _PAIR.findall(message.text):
            values.setdefault(name, []).append(float(number))
    broken, ordinary = [], []
    for name, numbers in values.items():
        finite = [abs(value) for value in numbers if math.isfinite(value)]
        if max(finite, default=0.0) >= ORDINARY:
            continue
        if len(finite) < len(numbers) and _REGRESSES.search(name):
            broken.append(name)
        elif finite and len(finite) == len(numbers) and _CLASSIFIES.search(name):
            ordinary.append(name)
    lost = [name for name, numbers in values.items() if not all(map(math.isfinite, numbers))]
    total = facts.symptoms.bad_losses > 0 and all(not _CLASSIFIES.search(name) for name in lost)
    if not broken and total and not facts.symptoms.explodes:
        broken = ["the loss"]
    if not broken or not ordinary:
        return None
    return f"{', '.join(broken[:3])} is NaN or inf while {', '.join(ordinary[:3])} is normal: its targets are bad"


def _observed(facts: Facts) -> Clues:
    rows = facts.seen("data.bad_rows")
    if rows is not None and rows.value:
        named = "; ".join(map(str, rows.value)) if isinstance(rows.value, list) else rows.value
        yield Clue(
            f"rows with NaN, inf, empty or corrupt values: {named}", PROOF, rows.where, fix="fix or drop the named rows"
        )


RULE = Rule(
    code="SF301",
    fix=(
        "find the row (assert torch.isfinite on every example), fix or drop it, and resume from an earlier checkpoint"
    ),
    prior=-3.5,
    beats=("nan-loss", "loss-collapse", "toxic-batch"),
    observes={"data.bad_rows": "rows of the data that are not finite, empty or corrupt, a list"},
    says={
        r"invalid jpeg data|corrupt jpeg data: premature end|image file is truncated|cannot identify image file": PROOF,
        r"found nan in observations": PROOF,
        r"\b(?:invalid|missing|corrupt\w*)\b.{0,40}\b(?:label|target|feature|annotation)s?\b.{0,120}\b(?:label|target|annotation)\W{1,3}"
        r"(?:null|none|undefined|nan)\b": PROOF,
        r"found indices in 'edge_index' that are larger than": STRONG + FAIR,
        r"there are 0-in-degree nodes in the graph": STRONG + FAIR,
        r"can'?t convert np\.ndarray of type numpy\.object_": PROOF,
    },
)
