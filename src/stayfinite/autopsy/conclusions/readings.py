"""Facts that a trace shows before any re-run: the kind of operator, its inputs, where it fails."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from stayfinite.autopsy.steps.batch_parts import bad_rows, batch_items, batch_size
from stayfinite.autopsy.steps.step import Step
from stayfinite.autopsy.steps.trace import Trace
from stayfinite.autopsy.tracing.events import NO_EVENT, NOTHING_SEEN, CloseLook, Event, Health, TensorLook
from stayfinite.autopsy.tracing.origin import CHOOSERS, Origin, batch_rows, custom_function
from stayfinite.core.source_lines import line_in_words

SINGULAR = (
    "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "div", "reciprocal", "pow", "acos", "asin", "acosh",
    "atanh", "norm", "linalg_vector_norm", "xlogy", "logit", "true_divide", "erfinv", "binary_cross_entropy",
    "lgamma", "digamma", "atan2", "std", "var", "_weight_norm_interface", "_weight_norm", "cdist",
    "_cdist_forward", "renorm", "fmod", "remainder", "kl_div", "tan", "polygamma", "prod", "linalg_inv",
    "linalg_solve", "linalg_svd", "_linalg_svd", "linalg_eigh", "_linalg_eigh", "linalg_cholesky_ex", "hypot",
)  # fmt: skip
"""Operators that have a point at which they or their derivatives are infinite or undefined."""

BELOW_ZERO = ("log", "log2", "log10", "sqrt", "rsqrt", "logit", "pow", "xlogy", "lgamma", "digamma")
"""Operators undefined below 0."""

TINY = 1e-30
"""Smaller numbers act as 0 in an fp32 division."""

WITHIN_ONE = ("acos", "asin", "atanh", "erfinv")
"""Operators defined between -1 and 1."""


def stands_at_edge(operator: str, look: TensorLook, *, backward: bool) -> bool:
    """Whether an input is at a singularity of the operator, at the positions of bad outputs if known."""
    if look.at_bad:
        return any(abs(value) < TINY or (not backward and _beyond(operator, value)) for value in look.at_bad)
    if look.zeros or 0 in look.shape:
        return True
    return not backward and any(_beyond(operator, value) for value in look.extremes)


def _beyond(operator: str, value: float) -> bool:
    """Whether a value is outside the operator's domain, or on its border."""
    if operator in WITHIN_ONE:
        return abs(value) >= 1.0
    if operator == "log1p":
        return value <= -1.0
    return operator in BELOW_ZERO and value <= 0.0


FP16_LIMIT = 65_504.0

ATTENTION = ("scaled_dot_product", "attention")
SOFTMAX = ("softmax", "logsumexp")
COUNTING = ("sum", "ne", "eq", "ge", "gt", "le", "lt", "_to_copy", "logical_not", "bitwise_not", "bitwise_and", "clone")
"""Operators used to count labels."""

FACTORS = ("mul", "add", "sub", "rsub", "div", "true_divide", "addcmul", "pow")
"""Operators that get NaN or infinity only by mistake, unlike masks."""

SPREADS = ("std", "var", "std_mean", "var_mean")
HUGE = 1e15
"""Squares of larger numbers come close to the fp32 limit."""

LOSS_MASKS = ("loss_mask", "label_mask", "completion", "response", "assistant")
LABELS = ("label", "target", "tgt", "y", "answer")


@dataclass(frozen=True)
class Readings:
    """A trace and its step."""

    step: Step
    trace: Trace

    @property
    def origin(self) -> Origin | None:
        """The earliest origin."""
        return self.trace.origin

    @cached_property
    def at(self) -> Event:
        """The operator to look at; an empty one if nothing is known."""
        return (self.origin and self.origin.where) or NO_EVENT

    @cached_property
    def look(self) -> CloseLook:
        """Inputs and output of the origin; empty if nobody looked."""
        return (self.origin and self.origin.look) or NOTHING_SEEN

    @cached_property
    def operator(self) -> str:
        """Operator of the origin without namespace; for a fault in backward, the forward operator."""
        forward = None if self.origin is None or self.at.called_back else self.origin.forward
        return (forward or self.at).operator.rpartition(".")[2].rstrip("_")

    @property
    def reader(self) -> str:
        """Operator that reads a bad leaf, and its source line."""
        if self.at is NO_EVENT:
            return "an operator"
        line = "" if self.at.place is None else f" at {line_in_words(self.at.place.file, self.at.place.line)}"
        return f"{self.at.operator.rpartition('.')[2].strip('_')}{line}"

    @property
    def undefined(self) -> bool:
        """Whether torch itself wrote a NaN because a formula has no value for its input."""
        return self.operator == "scalar_tensor" and any(map(math.isnan, self.at.constants))

    @property
    def hooked(self) -> str:
        """Source line of a backward hook."""
        place = self.at.place
        return self.place if place is None else f"a module, at {line_in_words(place.file, place.line)},"

    @cached_property
    def bad_number(self) -> float | None:
        """A NaN or infinite Python number used as a factor in the origin."""
        if self.operator not in FACTORS:
            return None
        worst = sorted((value for value in self.at.constants if not math.isfinite(value)), key=math.isnan)
        return worst[-1] if worst else None

    @property
    def place(self) -> str:
        """Module of the origin."""
        return self.trace.module or "the loss"

    @property
    def custom_function(self) -> str:
        """Custom autograd function whose backward contains the origin."""
        return custom_function(self.origin)

    @property
    def exponential(self) -> bool:
        """Whether it is an exponential, possibly written as a power."""
        written_as_power = self.operator == "pow" and self.at.overload == "Scalar"
        return written_as_power or self.operator in ("exp", "expm1", "exp2", "sinh", "cosh")

    @property
    def impossible_label(self) -> bool:
        """Whether a loss was taken of a label whose logit is masked to -inf."""
        infinite = Health.INFINITE in self.at.before and self.at.after is Health.INFINITE
        return infinite and self.operator in ("nll_loss_forward", "nll_loss2d_forward", "gather", "sum", "mean")

    @property
    def in_backward(self) -> bool:
        """Whether the forward pass was fine."""
        return self.at.phase == "backward"

    @property
    def dtype(self) -> str:
        """Dtype of the origin's output."""
        return self.at.dtype

    @cached_property
    def largest_input(self) -> float:
        """Largest finite magnitude among the origin's inputs."""
        return max((abs(value) for look in self.look.inputs for value in look.extremes), default=0.0)

    @property
    def first_input(self) -> str:
        """Name of the origin's first input, if it is a parameter or a batch item."""
        return self.look.inputs[0].name if self.look.inputs else ""

    @property
    def makes_nan(self) -> bool:
        """Whether the origin's output has NaN, not only infinities."""
        return self.look.output.nans > 0

    @cached_property
    def overflowed(self) -> bool:
        """Whether finite inputs gave infinities without being at a singularity."""
        return self.look.output.infinities > 0 and not self.at_edge

    @cached_property
    def at_edge(self) -> bool:
        """Whether the operator, or its derivative, is infinite or undefined at its input."""
        inputs, operator = self.look.inputs, self.operator
        if operator == "mul":
            infinite = Health.INFINITE in self.at.before or any(map(math.isinf, self.at.constants))
            return self.makes_nan and infinite and any(each.zeros for each in inputs)
        if operator in ("div", "true_divide") and 0.0 in self.at.constants:
            return True
        if operator == "mean":
            return any(0 in look.shape for look in inputs)
        if operator.startswith("nll_loss"):  # a mean over weights that are all 0
            return self.makes_nan
        if operator not in SINGULAR and not operator.startswith(("linalg_", "_linalg_")):
            return False
        # A power of a negative number may just overflow; only a NaN shows a singularity.
        overflows = operator == "pow" and self.look is not NOTHING_SEEN and not self.makes_nan
        return any(stands_at_edge("" if overflows else operator, look, backward=self.in_backward) for look in inputs)

    @cached_property
    def unused_branch(self) -> bool:
        """Whether the bad derivative belongs to a forward value that a `where` discarded."""
        forward = None if self.origin is None else self.origin.forward
        if not self.in_backward or forward is None:
            return False
        choosers = [event for event in self._readers_of(forward) if event.operator.startswith(CHOOSERS)]
        if forward.after > Health.FINITE and any(event.after is Health.FINITE for event in choosers):
            return True
        # Or the forward value was fine, and its incoming gradient is 0.
        return self.makes_nan and any(each.zeros for each in self.look.inputs) and self._only_chosen(forward)

    def _only_chosen(self, event: Event) -> bool:
        """Whether every path from an event to the loss goes through operators that discard values."""
        later = [each for each in self.trace.tracer.events[event.number + 1 :] if each.phase == "forward"]
        reached, chosen = {event.number}, False
        for other in later:
            if reached.intersection(other.inputs):
                if other.operator.startswith(CHOOSERS):
                    chosen = True
                else:
                    reached.add(other.number)
        return chosen and later[-1].number not in reached

    @cached_property
    def masked_rows(self) -> bool:
        """Whether a softmax is over -inf only, or attention over no key."""
        if self.in_backward:
            return False
        if any(word in self.operator for word in SOFTMAX):
            return Health.INFINITE in self.at.before
        closed = any(look.infinities or (look.dtype == "bool" and look.zeros) for look in self.look.inputs)
        return closed and any(word in self.operator for word in ATTENTION)

    @cached_property
    def no_labels(self) -> str:
        """Batch item without supervision: labels that are all ignored, a mask that is all 0."""
        items = batch_items(self.step.batch)
        if "nll_loss" in self.at.operator:
            targets = [look for look in self.look.inputs if look.dtype == "int64"]
            ignored = targets[0].largest if targets and targets[0].least == targets[0].largest else None
            if ignored is not None and (ignored < 0 or ignored in self.at.constants[-1:]):
                return next(filter(is_labels, items), "labels")
        if self.operator not in ("div", "true_divide", "mean"):
            return ""
        if counted := self._counted_labels():
            return counted
        for name, item in items.items():
            unsupervised = item.numel() > 0 and not item.is_floating_point() and item.dtype.is_signed
            if is_labels(name) and unsupervised and bool((item < 0).all()):
                return name
            if any(word in name.lower() for word in LOSS_MASKS) and item.numel() and not bool(item.bool().any()):
                return name
        return ""

    def _counted_labels(self) -> str:
        """Labels counted by a denominator of 0, if it counts labels."""
        tracer = self.trace.tracer
        todo: list[int] = list(self.at.inputs[1:2])
        seen: set[int] = set()
        compared = False
        while todo and len(seen) < 32:
            number = todo.pop()
            if number in seen:
                continue
            seen.add(number)
            if number < 0:
                name = tracer.leaves.get(number, "")
                if compared and name.startswith("batch") and is_labels(name):
                    return name
            elif tracer.events[number].operator.rpartition(".")[2] in COUNTING:
                compared = compared or tracer.events[number].dtype == "bool"
                todo += tracer.events[number].inputs
        return ""

    @cached_property
    def constant_feature(self) -> bool:
        """Whether it is a division by a std of 0."""
        if self.operator not in ("div", "true_divide", "reciprocal", "rsqrt"):
            return False
        writers = self._writers_of([self.at])
        return any(w.operator.startswith(("aten.std", "aten.var")) for w in [*writers, *self._writers_of(writers)])

    @property
    def too_few_for_a_spread(self) -> bool:
        """Whether a std has too few values, usually one row, so its denominator is 0."""
        return self.operator in SPREADS and not self.in_backward and self.makes_nan and self.largest_input < HUGE

    @property
    def no_rows(self) -> bool:
        """Whether all tensors of the batch are empty."""
        items = [item for item in batch_items(self.step.batch).values() if item.dim()]
        return bool(items) and not any(item.numel() for item in items)

    @property
    def rewards(self) -> bool:
        """Whether the batch has rewards: equal ones have no spread."""
        words = ("reward", "advantage", "return")
        return any(word in name.lower() for name in batch_items(self.step.batch) for word in words)

    @cached_property
    def rows(self) -> list[int]:
        """Batch rows of the origin's bad values, as far as its shape shows."""
        size = batch_size(self.step.batch)
        if self.origin is not None and self.origin.leaf:
            item = batch_items(self.step.batch).get(self.origin.leaf)
            return [] if item is None or size is None else bad_rows(item, size)
        output = self.look.output
        return batch_rows(output.shape, output.bad_rows, size) if self._of_the_batch else []

    @property
    def _of_the_batch(self) -> bool:
        """Whether the origin depends on the batch: rows of a weight are not batch rows."""
        tracer = self.trace.tracer
        if self.origin is None or self.at is NO_EVENT:
            return True
        todo, seen = [(self.origin.forward or self.at).number], set[int]()
        while todo:
            number = todo.pop()
            if number < 0:
                if tracer.leaves.get(number, "batch").startswith("batch"):
                    return True
            elif number not in seen:
                seen.add(number)
                todo += tracer.events[number].inputs
        return False

    def _readers_of(self, event: Event) -> Iterator[Event]:
        """Forward events that use this one's output, directly or through others."""
        reached = {event.number}
        for other in self.trace.tracer.events[event.number + 1 :]:
            if other.phase == "forward" and reached.intersection(other.inputs):
                reached.add(other.number)
                yield other

    def _writers_of(self, events: list[Event]) -> list[Event]:
        return [self.trace.tracer.events[n] for event in events for n in event.inputs if n >= 0]


def is_labels(name: str) -> bool:
    """Whether an item of the batch is called like labels."""
    last = name.rpartition(".")[2].lower()
    return any(last == word or (len(word) > 1 and word in last) for word in LABELS)
