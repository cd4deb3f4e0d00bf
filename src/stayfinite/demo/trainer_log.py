"""The log of the wild lane: what transformers' Trainer prints, including its NaN filter."""

import math


class TrainerLog:
    """Averages the losses of `every` steps into one line, as the Trainer does, with its `logging_nan_inf_filter`.

    A non-finite loss is replaced by the mean since the last line. Right after a line that mean is 0, so from the first
    NaN on every line says 0.0.
    """

    def __init__(self, every: int, steps_an_epoch: float) -> None:
        self.every = every
        self.steps_an_epoch = steps_an_epoch
        self.last_loss = math.nan
        """The loss of the last line."""
        self._sum = 0.0
        self._step = 0

    def add(self, loss: float, grad_norm: float, lr: float) -> str | None:
        """Add one step; return the line if one is due."""
        since = self._step % self.every
        self._sum += loss if math.isfinite(loss) else self._sum / (1 + since)
        self._step += 1
        if self._step % self.every:
            return None
        self.last_loss = round(self._sum / self.every, 4)
        self._sum = 0.0
        epoch = round(self._step / self.steps_an_epoch, 2)
        return str({"loss": self.last_loss, "grad_norm": grad_norm, "learning_rate": lr, "epoch": epoch})
