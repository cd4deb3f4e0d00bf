"""Losses that are summed over all pixels of a batch, where the rate is made for their mean."""

from __future__ import annotations

from collections.abc import Iterator

from stayfinite.readers.configs.course.following import Course
from stayfinite.readers.configs.course.models import default_of, number_of, optimizers
from stayfinite.readers.configs.course.terms import Term, bare, constant
from stayfinite.readers.configs.judges.fault import Fault
from stayfinite.readers.configs.judges.losses import PAIRED, loss_name

_USUAL = 0.01
"""A rate of SGD for means; times the pixels of one small image it is above 10."""
_OF_IMAGES = frozenset({"Conv2d", "Conv3d", "ConvTranspose2d", "ConvTranspose3d", "PixelShuffle", "Upsample"})


def summed_pixels(course: Course) -> Iterator[Fault]:
    """`nn.MSELoss(reduction="sum")` of images under SGD with lr=0.05."""
    made = {each.line: each for each in optimizers(course)}
    rates = [number_of(course, each.given(1, "lr")) for each in made.values() if each.last == "SGD"]
    if len(made) != 1 or len(rates) != 1 or (rates[0] or 0.0) < _USUAL or "clip_grad" in course.code:
        return
    for event in course.events:
        loss = event.term
        if event.kind == "backward" and _is_sum(course, loss) and _is_image(loss.given(0, "input")):
            text = f"{loss.shown[:60]} is a sum over all pixels, at an SGD rate of {rates[0]:g}"
            yield Fault("wrong-reduction", text, loss.line, fix='reduction="mean", or divide the rate by the pixels')
            return


def _is_sum(course: Course, loss: Term) -> bool:
    """Whether a value is a loss of torch with `reduction="sum"`, maybe one of several in a dict."""
    maker = loss.parts[0] if loss.op == "applied" else loss
    among = maker.parts[0] if maker.op == "applied" else None
    several = among is not None and among.op == "index" and among.parts[0].op == "dict"
    if several and among is not None:
        known = all(each.op == "library" and each.last in PAIRED for each in among.parts[0].attributes.values())
    else:
        known = loss_name(loss) in PAIRED
    asked = maker.keywords.get("reduction")
    if asked is not None and asked.op == "attribute":
        asked = default_of(course, asked.name)
    return known and constant(asked) == "sum"


def _is_image(given: Term | None) -> bool:
    """Whether a layer of images made it last."""
    given = bare(given) if given is not None else None
    return given is not None and given.op == "applied" and given.parts[0].last in _OF_IMAGES
