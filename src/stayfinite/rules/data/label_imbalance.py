"""One class dominates the labels: always predicting it scores well.

## What it means
With 97% of one class, a model that always names it has an accuracy of 97% and a low loss. It has learned the base
rate, and nothing else. Precision and recall of the rare classes are 0.

## Why it happens
- The world is so: faults, fraud, diseases, spam, background pixels.
- Filtering or sampling took one class away; a join lost labels and filled them with 0.
- Batches too small to hold a rare class: most steps push towards the common one.

## How to recognize it
- Accuracy equal to the share of the largest class from the first evaluation on, and standing there; F1, recall or MCC
  0.
- sklearn's `UndefinedMetricWarning: Precision is ill-defined and being set to 0.0 due to no predicted samples`.
- A confusion matrix with one filled column; `np.unique(predictions, return_counts=True)` shows one class.

## How to fix it
- Judge by F1, balanced accuracy, average precision or MCC, not by accuracy (transformers:
  `metric_for_best_model="f1"`).
- Weight the loss: `nn.CrossEntropyLoss(weight=total / (classes * counts))`,
  `BCEWithLogitsLoss(pos_weight=negatives / positives)`; square roots of these where they are extreme.
- Or sample: `WeightedRandomSampler(weights, len(weights))` in the DataLoader. One of the two, not both.
- Move the threshold on the validation set instead of using 0.5.
- Initialize the last bias with the base rate, `bias = log(p / (1 - p))`: the first hundreds of steps are then not
  spent on it. Focal loss for dense detection.

## When it is a false alarm
Constant predictions in the first steps are usual; judge after an epoch. The same face has a learning rate of 0
(SF202), a detached head (SF401) or labels that have nothing to do with the input.
"""

from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import FAIR, PROOF, STRONG, Clue, Clues, Rule, quote, reaches

SOON = 3
"""Logged accuracies in which no network learns to answer everything right."""
_SHARE = (
    r"\b(?:background|majority|negatives?|one class|normal)\b[^.;\n]{0,50}\b9\d(?:\.\d+)? ?%|"
    r"\b9\d(?:\.\d+)? ?%[^.;\n]{0,30}\b(?:background|negatives?|one class|normal|zeros?)\b|"
    r"\b(?:occup(?:y|ies)|covers?|makes? up|accounts? for|(?:is|are) (?:only|just))(?: (?:only|just|about|around|"
    r"roughly|less|than|some))* ~?\d(?:\.\d+)? ?% of\b|"
    r"\b(?:im|un)balanced (?:data\w*|class\w*|labels?)|\bclass imbalance"
)


def judge(facts: Facts) -> Clues:
    """Clues: the measured share of the largest class, or metrics of 0 next to a high constant accuracy."""
    yield from reaches(facts, "labels.largest_share", 0.9, "{:.1%} of the labels are one class", proof=0.97)
    yield from quote(facts.symptoms.contradicted("class not found"), STRONG, "{}: one class is never predicted")
    if facts.symptoms.trouble:
        yield from _one_label(facts)
        yield from quote(facts.mentioned(_SHARE), STRONG, "most labels are one class: {:.80}")
    undefined = facts.said(r"UndefinedMetricWarning")
    accuracy = facts.metric("eval_accuracy", "accuracy", "val_accuracy", "val_acc", "acc")
    score = facts.metric("eval_f1", "f1", "val_f1", "eval_recall", "recall", "eval_matthews_correlation", "mcc")
    constant = len(accuracy) >= 2 and len({value for value, _ in accuracy}) == 1
    nothing = len(score) >= 1 and all(value == 0 for value, _ in score)
    yield from quote(undefined, FAIR)
    if nothing and (undefined is not None or constant or (accuracy and accuracy[-1][0] > 0.5)):
        yield Clue("F1, recall or correlation is 0", FAIR, score[0][1])
        if accuracy and 0.9 <= accuracy[-1][0] <= 1:
            yield Clue(f"at an accuracy of {accuracy[-1][0]:.4g}: every answer is the common class", STRONG)


def _one_label(facts: Facts) -> Clues:
    """Every answer right and no loss at all, a few batches after chance level: there is one label to learn."""
    right = facts.metric("acc@1", "prec@1", "train_accuracy", "train_acc", "accuracy", "acc")
    best = 100 if any(value > 1 for value, _ in right) else 1
    if facts.symptoms.zero_loss and len(right) >= SOON and right[0][0] < best and right[-1][0] == best:
        since = next(at for at, (value, _) in enumerate(right) if value == best)
        if since <= SOON and all(value == best for value, _ in right[since:]):
            text = f"all answers are right from line {since + 1} of the log on, at a loss of 0: one label for every row"
            yield Clue(text, STRONG + FAIR, right[since][1])


RULE = Rule(
    code="SF310",
    severity="warning",
    fix=(
        "weight the loss (CrossEntropyLoss(weight=...), pos_weight) or sample by class (WeightedRandomSampler), and "
        "measure F1 or balanced accuracy"
    ),
    observes={"labels.largest_share": "the share of the most frequent class, 0 to 1"},
    says={
        r"needs samples of at least 2 classes in the data": PROOF,
    },
)
