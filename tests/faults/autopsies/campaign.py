"""Every fault and every look-alike, and an autopsy of a fault held against what is on record."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from faults.autopsies import (  # noqa: F401 - importing a file enters its faults in the list
    attention,
    batches,
    data,
    derivatives,
    half_precision,
    healthy_formulas,
    healthy_masks,
    healthy_models,
    kernels,
    layers,
    logarithms,
    loops,
    means,
    optimizers,
    overflow,
    own_functions,
    powers,
    quotients,
    rounding,
    several,
    unused_branches,
    weights,
    wrappers,
)
from faults.autopsies.record import FAULTS, LOOK_ALIKES, Entry, Planted
from stayfinite.autopsy.autopsy import perform
from stayfinite.autopsy.worlds.worlds import Materials

__all__ = ["FAULTS", "LOOK_ALIKES", "Finding", "examine"]

SPEAKS_OF = {
    "rows_removed": ("row", "batch"),
    "fp32": ("fp32",),
    "bf16": ("bf16",),
    "origin_fp32": ("fp32",),
    "small_loss_scale": ("scale",),
    "large_loss_scale": ("scale",),
    "math_attention": ("kernel",),
    "eager_attention": ("eager",),
    "eager": ("compile",),
    "good_weights": ("checkpoint", "learning rate", "return to"),
    "previous_update_undone": ("checkpoint", "learning rate", "go back to"),
}
"""A fix that a world has verified has to be the one that its text proposes: one of these words is in it."""


@dataclass
class Finding:
    """What an autopsy said of a planted fault, and what of it is wrong."""

    name: str
    said: dict[str, Any]
    wrong: dict[str, str] = field(default_factory=dict)
    """By what was asked for: cause, operator, module ..."""

    def __str__(self) -> str:
        origin = self.said["origin"] or {}
        operator = " of ".join(filter(None, (origin.get("operator"), origin.get("forward_operator"))))
        rows = ",".join(map(str, self.said["rows"])) or "-"
        by = self.said["fix"]["by"] or "-"
        ending = "  ".join(f"{what}: {why}" for what, why in self.wrong.items()) or "right"
        return (
            f"{self.name:52} {self.said['cause'] or '-':26} {self.said['confidence']:4.2f} {operator or '-':46} "
            f"{origin.get('module') or '-':50} {rows:8} {by:24} {self.said['seconds']:6.2f} s  {ending}"
        )


def examine(entry: Entry) -> Finding:
    """Plant a fault, perform the autopsy, and compare."""
    planted: Planted = entry()
    said = perform(planted.step, Materials(**planted.materials)).to_json()
    finding = Finding(entry.name, said)

    def expect(what: str, *, right: bool, found: Any, wanted: Any) -> None:
        if not right:
            finding.wrong[what] = f"{found} instead of {wanted}"

    origin = said["origin"] or {}
    expect("cause", right=said["cause"] in planted.cause, found=said["cause"], wanted=" or ".join(planted.cause))
    if planted.operator:
        operator, forward, module = origin.get("operator"), origin.get("forward_operator"), origin.get("module")
        expect("operator", right=operator in planted.operator, found=operator, wanted=planted.operator)
        expect("module", right=module in planted.module, found=module, wanted=planted.module)
        expect("phase", right=origin.get("phase") == planted.phase, found=origin.get("phase"), wanted=planted.phase)
        allowed = planted.forward_operator or (None,)
        if planted.forward_operator or planted.phase == "forward":
            expect("forward operator", right=forward in allowed, found=forward, wanted=allowed)
        if entry.line is not None:
            place = f"{entry.file}:{entry.line}"
            found = f"{origin.get('file')}:{origin.get('line')}"
            expect("line", right=place in (found, origin.get("called_from")), found=found, wanted=place)
    if planted.rows is not None:
        expect("rows", right=said["rows"] == list(planted.rows), found=said["rows"], wanted=list(planted.rows))
    fix = said["fix"]
    if planted.fix:
        by = set((fix["by"] or "").split("+"))
        shown = fix["verified"] and (not planted.fixed_by or by <= set(planted.fixed_by))
        expect("fix", right=bool(shown), found=fix["by"], wanted=planted.fixed_by or "a verified one")
    for world in filter(None, (fix["by"] or "").split("+")):
        words = SPEAKS_OF.get(world, ("",))
        told = fix["text"] + "".join(other["fix"]["text"] for other in said["also"])
        expect("fix text", right=any(word in told for word in words), found=fix["text"], wanted=f"words on {world}")
    return finding


def main() -> None:
    """Print what became of every fault, one line each."""
    findings = []
    for entry in FAULTS.values():
        findings.append(examine(entry))
        print(findings[-1], flush=True)
    right = sum(not finding.wrong for finding in findings)
    seconds = sum(finding.said["seconds"] for finding in findings)
    print(f"{right} of {len(findings)} faults explained as planted, in {seconds:.0f} s")


if __name__ == "__main__":
    main()
