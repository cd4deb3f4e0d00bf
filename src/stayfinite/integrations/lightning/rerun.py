"""Re-run a ``training_step`` to explain a bad one, without a trace in logs and metrics."""

import copy
import importlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from stayfinite.doctor.stand_ins import StandIns
from stayfinite.errors import OrderError
from stayfinite.integrations.lightning.package import PACKAGES


class Reached(BaseException):
    """Raised at the first ``manual_backward`` of a manually optimized step; what follows would change the training."""

    def __init__(self, loss: Tensor) -> None:
        super().__init__()
        self.loss = loss


def loss_of(output: Any) -> Tensor | None:
    """The loss in a ``training_step``'s result."""
    found = output.get("loss") if isinstance(output, Mapping) else output
    return found if isinstance(found, Tensor) else None


def rerun(trainer: Any, module: Any, step: Callable[..., Any], batch: Any, rest: tuple[Any, ...]) -> Tensor:
    """Run a ``training_step`` again and return its loss.

    Raises:
        OrderError: it returns no loss.
    """
    # If autocast is on, the caller set it, perhaps to another precision on purpose.
    autocasts = getattr(trainer.precision_plugin, "autocast_context_manager", None) is not None
    context = nullcontext() if autocasts else trainer.precision_plugin.train_step_context()
    with quiet(trainer, module), context:
        try:
            loss = loss_of(step(batch, *rest))
        except Reached as reached:
            loss = reached.loss
    if loss is None:
        raise OrderError("training_step returned no loss in the re-run")
    return loss


@contextmanager
def quiet(trainer: Any, module: Any) -> Iterator[None]:
    """Context without logging; metrics and frozen state are restored afterwards."""
    stand_ins = StandIns()
    for name in ("log", "log_dict", "print"):
        stand_ins.put(module, name, lambda _, *__, **___: None)
    if not module.automatic_optimization:
        stand_ins.put(module, "manual_backward", _stop)
    loggers = list(trainer.loggers)
    trainer.loggers = [_dummy_logger(trainer)] if loggers else []
    metrics = [(each, _counted(each)) for each in module.modules() if _is_metric(each)]
    frozen = [(parameter, parameter.requires_grad) for parameter in module.parameters()]
    toggled = getattr(module, "_param_requires_grad_state", None)
    try:
        yield
    finally:
        for metric, before in metrics:
            vars(metric).clear()
            vars(metric).update(before)
        for parameter, wanted in frozen:
            parameter.requires_grad_(wanted)
        if toggled is not None:
            module._param_requires_grad_state = toggled
        trainer.loggers = loggers
        stand_ins.off()


def _stop(_: Any, loss: Tensor, *__: Any, **___: Any) -> None:
    raise Reached(loss)


def _dummy_logger(trainer: Any) -> Any:
    home = next(each.__module__ for each in type(trainer).__mro__ if each.__module__.startswith(PACKAGES))
    package = next(name for name in PACKAGES if home.startswith(name))
    return importlib.import_module(f"{package}.loggers.logger").DummyLogger()


def _is_metric(module: nn.Module) -> bool:
    return any(
        each.__name__ == "Metric" and each.__module__.startswith("torchmetrics") for each in type(module).__mro__
    )


def _counted(metric: Any) -> dict[str, Any]:
    # A metric updates its states in place.
    states = {name: copy.deepcopy(getattr(metric, name)) for name in metric._defaults}
    with torch.no_grad():
        return dict(vars(metric)) | states
