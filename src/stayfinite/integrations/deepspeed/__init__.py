"""DeepSpeed: one line after ``deepspeed.initialize``; the loop does not change.

Example:
    >>> from stayfinite.integrations.deepspeed import deepspeed_guard
    >>> engine, *_ = deepspeed.initialize(model=model, config=config)
    >>> guard = deepspeed_guard(engine, run_dir="runs/first")
    >>> for batch in loader:
    ...     engine.backward(engine(**batch).loss)
    ...     engine.step()
"""

from stayfinite.integrations.deepspeed.guard import StayFinite, deepspeed_guard

__all__ = ["StayFinite", "deepspeed_guard"]
