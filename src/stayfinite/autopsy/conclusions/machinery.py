"""Faults of the machinery: kernel, compiler, hardware."""

from __future__ import annotations

from stayfinite.autopsy.conclusions.conclusion import UNDECIDED_SPIKE, Conclusion, Evidence, judge_of
from stayfinite.autopsy.steps.surroundings import device_in_words
from stayfinite.autopsy.worlds.elsewhere import device_of

SAME = "the same weights, batch and random numbers"


def does_not_return(e: Evidence) -> Conclusion | None:
    """A re-run of the same step is fine."""
    here = device_of(e.readings.step.model)
    if e.good("same") and e.materials.device and here is not None and here.type != e.materials.device:
        return _fine_elsewhere(e, here.type)
    same = e.outcomes.get("same")
    lost = same is not None and not same.finite and not same.error
    differs = _differs(e)
    if lost and e.readings.trace.finite and not e.good("eager"):
        again = f"some runs with {SAME} are finite and some are not"
    elif e.good("same") and e.materials.spike_limit is not None:
        if differs:
            return _by_chance(e, differs)
        again = f"re-run with {SAME}, the step is normal"
    elif e.good("same") and (e.materials.trigger != "manual" or not e.readings.trace.finite):
        with_what = f"the same batch, but {' and '.join(differs)}" if differs else SAME
        again = f"re-run with {with_what}, the step is finite"
    else:
        return None
    rebuilt = bool(e.materials.notes.get("rebuilt"))
    kept = "state that build() recreates" if rebuilt else "a counter, a cache, another model"
    return Conclusion(
        cause="hardware",
        confidence=0.4 if differs or rebuilt else 0.6,
        why=f"{again}: a transient device fault, or forward uses state outside the model ({kept})",
        fix=(
            "keep state of forward in the model; look for Xid and ECC lines in the kernel log; try another device, and "
            "torch.use_deterministic_algorithms(True)"
        ),
        worlds=("same",),
    )


def _differs(e: Evidence) -> list[str]:
    """Differences between the step and its re-run."""
    found = ["newer weights"] if e.materials.notes.get("weights") else []
    if e.materials.notes.get("random") and e.readings.trace.uses_dropout:
        found.append("other random numbers")
    return found


def _by_chance(e: Evidence, differs: list[str]) -> Conclusion:
    """A finite spike that a small change removes."""
    return Conclusion(
        cause=UNDECIDED_SPIKE.get(e.materials.trigger, "loss-diverging"),
        confidence=0.3,
        why=f"re-run with {' and '.join(differs)}, the same batch is normal: a random spike",
        fix="rare: let the guard handle it; frequent: lower the learning rate or use larger batches",
    )


def attention_kernel(e: Evidence) -> Conclusion | None:
    """Only the fused attention kernel fails."""
    world = next((name for name in ("math_attention", "eager_attention") if e.good(name)), None)
    if world is None or e.readings.masked_rows:
        return None
    return Conclusion(
        cause="sdpa-kernel-bug",
        confidence=0.93,
        why="only the fused attention kernel fails; the math kernel is finite",
        fix='use another kernel: attn_implementation="eager", sdpa_kernel(SDPBackend.MATH), or a newer torch',
        setting={"attn_implementation": "eager"},
        worlds=(world,),
    )


@judge_of(
    "upstream-bug", 0.85, "disable torch.compile for the module, or try a newer torch", "eager",
    setting={"torch_compile": False},
)  # fmt: skip
def compiler(e: Evidence) -> str | bool:
    """Only the compiled step fails."""
    return e.good("eager") and "only the compiled step fails; the same step in eager mode is finite"


def device(e: Evidence) -> Conclusion | None:
    """Fails here every time, and is finite on another kind of device."""
    here = device_of(e.readings.step.model)
    if here is None or e.readings.at_edge or not (e.bad("same") and e.good("other_device")):
        return None
    there = "an accelerator" if here.type == "cpu" else "the CPU"
    dropout = ", both without dropout" if e.readings.trace.uses_dropout else ""
    another = "" if here.type == "cpu" else f" and on another device (stayfinite replay --device {here.type}:1)"
    return Conclusion(
        cause="upstream-bug",
        confidence=0.6,
        why=(
            f"{e.readings.operator or 'the step'} in {e.readings.place} fails on {device_in_words(here)} every time "
            f"and is finite on {there}{dropout}: a wrong kernel or device"
        ),
        fix=f"compute it on {there}; to find which, replay with another version of torch{another}",
        worlds=("other_device",),
    )


def _fine_elsewhere(e: Evidence, here: str) -> Conclusion:
    """Failed on the device of the incident, finite on the one it is replayed on."""
    drawn = ", with other random numbers," if e.readings.trace.uses_dropout else ""
    before = e.materials.device
    return Conclusion(
        cause="hardware",
        confidence=0.5,
        why=(
            f"the step failed on {before} and is finite{drawn} on {here}: a transient fault, a bad kernel or a bad "
            "device"
        ),
        fix=(
            f"stayfinite replay --device {before}. If finite, look for Xid and ECC lines in the kernel log; if bad, "
            "try another version of torch"
        ),
    )
