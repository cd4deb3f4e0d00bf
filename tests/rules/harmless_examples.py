"""Runs that look bad and are fine, and runs that look alike and are not."""

from rules.example import Example


def _lines(first: float, last: float, count: int, start: int = 0) -> str:
    step = (last - first) / max(1, count - 1)
    return "\n".join(
        f"{{'loss': {first + step * i:.4f}, 'grad_norm': 0.8, 'learning_rate': {1e-5 * (start + i):.1e}, 'epoch': 0.1}}"
        for i in range(count)
    )


EXAMPLES: dict[str, tuple[Example, Example]] = {
    "amp-initial-scale-search": (
        Example(
            log="Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 32768.0\n"
            "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 16384.0\n"
            + _lines(2.1, 1.4, 12, 1),
        ),
        Example(
            log="\n".join(
                f"Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to {2.0**power}"
                for power in range(15, -8, -1)
            ),
        ),
    ),
    "lr-zero-first-step": (
        Example(log=_lines(2.1, 1.4, 12)),
        Example(
            log="\n".join(
                f"{{'loss': 2.31, 'grad_norm': 0.8, 'learning_rate': 0.0, 'epoch': {i / 10}}}" for i in range(8)
            )
        ),
    ),
    "high-initial-loss": (
        Example(log=_lines(28.4, 3.2, 12, 1)),
        Example(log=_lines(28.4, 28.1, 12, 1)),
    ),
    "benign-inf": (
        Example(
            log="\n".join(f"step {100 * i}: train loss {7.4 - 0.4 * i:.3f}" for i in range(8))
            + "\nval_loss improved from inf to 5.113\n",
        ),
        Example(log="step 100: train loss 7.4\nstep 200: train loss inf\nstep 300: train loss nan\n"),
    ),
    "benign-warning": (
        Example(
            log="UserWarning: Was asked to gather along dimension 0, but all input tensors were scalars; will "
            "instead unsqueeze "
            "and return a vector.\n" + _lines(2.1, 1.4, 12, 1),
        ),
        Example(
            log="FutureWarning: `torch.cuda.amp.autocast(args...)` is deprecated.\nstep 1: loss nan\nstep 2: "
            "loss nan\n",
        ),
    ),
}
