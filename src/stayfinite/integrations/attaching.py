"""Attach a guard to a running training script from outside, and remove it without a trace.

Loads no framework: when the script imports one, the import is noticed, and one method of the training class
(``Trainer.__init__``, ``Accelerator.prepare``, ``DeepSpeedEngine.__init__``), or a factory function
(``get_megatron_optimizer``), adds the guard when it returns.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from stayfinite.core.policy import Policy
from stayfinite.errors import StayfiniteError
from stayfinite.integrations.places import free_place

Tell = Callable[[str], None]


class Owned(Exception):
    """The script already has a guard."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """A method call that has returned."""

    owner: Any
    """Object of the method; for a function, its result."""
    returned: Any
    by: str
    """Calling module."""
    policy: Policy
    given: Mapping[str, Any] = field(default_factory=dict)
    """Arguments by name."""


@dataclass(frozen=True, kw_only=True)
class Seam:
    """A framework method after which a guard can be added."""

    module: str
    """Module of its class; its import is noticed."""
    kind: str
    """Class name; empty for a function of the module."""
    method: str
    add: Callable[[Call], Any]
    """Adds and returns a guard; None if there is nothing to guard yet. Raises Owned."""
    remove: Callable[[Any, Any], None]
    """Removes the guard from its owner."""

    def __str__(self) -> str:
        name = f"{self.kind}.{self.method}" if self.kind else self.method
        return f"{self.module.partition('.')[0]} {name}"


@dataclass(kw_only=True)
class Attached:
    """Guards attached so far."""

    policy: Policy
    tell: Tell
    guards: list[tuple[Any, Any, Seam]] = field(default_factory=list)
    """Objects with their guards."""
    own: int = 0
    """Objects that the script itself has guarded."""

    @property
    def run_dirs(self) -> list[Path]:
        """Run directories in order, without duplicates."""
        found = [guard.run_dir for _, guard, _ in self.guards]
        return list(dict.fromkeys(place for place in found if place is not None and place.exists()))

    def meet(self, call: Call, seam: Seam) -> None:
        """Add a guard after the method has returned."""
        if any(each is call.owner for each, _, _ in self.guards):
            return
        try:
            guard = seam.add(call)
        except Owned:
            self.own += 1
            self.tell(f"{type(call.owner).__name__} already has a StayFinite callback; nothing attached")
            return
        except StayfiniteError as error:
            self.tell(f"cannot attach to {type(call.owner).__name__}: {error}")
            return
        if guard is not None:
            self.guards.append((call.owner, guard, seam))
            self.tell(f"hooked into {type(call.owner).__name__}, after {seam}")


@dataclass(frozen=True, kw_only=True)
class _Placed:
    """A guard with its run directory."""

    guard: Any
    run_dir: Path


def _add_to_transformers(call: Call) -> Any:
    from stayfinite.integrations.transformers import StayFinite

    if any(isinstance(each, StayFinite) for each in call.owner.callback_handler.callbacks):
        raise Owned
    call.owner.add_callback(callback := StayFinite(call.policy))
    return callback


def _add_to_lightning(call: Call) -> Any:
    from stayfinite.integrations.lightning import StayFinite

    if any(isinstance(each, StayFinite) for each in call.owner.callbacks):
        raise Owned
    # Checkpoint callbacks come last, so insert before them.
    call.owner.callbacks.insert(0, callback := StayFinite(call.policy))
    return callback


def _add_to_accelerate(call: Call) -> Any:
    # The Trainer prepares its parts the same way, and is guarded as a Trainer.
    if call.by.partition(".")[0] in ("transformers", "trl"):
        return None
    from accelerate.optimizer import AcceleratedOptimizer
    from torch import nn

    from stayfinite.integrations.accelerate import accelerate_guard

    parts = call.returned if isinstance(call.returned, tuple) else (call.returned,)
    models = [part for part in parts if isinstance(part, nn.Module)]
    optimizers = [part for part in parts if isinstance(part, AcceleratedOptimizer)]
    if len(models) != 1 or len(optimizers) != 1:
        return None
    scheduler = next((part for part in parts if type(part).__name__ == "AcceleratedScheduler"), None)
    place = free_place(Path(call.owner.project_dir or ".").absolute() / "stayfinite", again=False)
    settings: dict[str, Any] = {"policy": call.policy, "run_dir": place, "checkpointing": False}
    return _Placed(guard=accelerate_guard(call.owner, models[0], optimizers[0], scheduler, **settings), run_dir=place)


def _add_to_torchtitan(call: Call) -> Any:
    from stayfinite.integrations.torchtitan import torchtitan_guard

    asked = [each if isinstance(each, str) else each[0] for each in call.owner.config.override.imports]
    if any(each.startswith("stayfinite.") for each in asked):
        raise Owned
    return torchtitan_guard(call.owner, policy=call.policy)


def _add_to_megatron(call: Call) -> Any:
    from stayfinite.integrations.megatron import megatron_guard

    place = _place_of_all(Path("stayfinite").absolute())
    return megatron_guard(call.given["model_chunks"], call.owner, policy=call.policy, run_dir=place)


@dataclass(frozen=True, kw_only=True)
class _InOlmo:
    """OLMo-core's callback, whose run directory is known only after training has started."""

    callback: Any

    @property
    def run_dir(self) -> Path | None:
        place: Path | None = self.callback.place
        return place


def _add_to_olmo(call: Call) -> Any:
    from stayfinite.integrations.olmo import StayFinite

    if any(isinstance(each, StayFinite) for each in call.owner.callbacks.values()):
        raise Owned
    call.owner.add_callback("stayfinite", callback := StayFinite(call.policy))
    return _InOlmo(callback=callback)


def _remove_from_olmo(trainer: Any, added: Any) -> None:
    if trainer.callbacks.get("stayfinite") is added.callback:
        del trainer.callbacks["stayfinite"]


def _refuse_composer(_: Call) -> Any:
    from stayfinite.guard.checks import not_in_composer

    raise not_in_composer()


def _add_to_deepspeed(call: Call) -> Any:
    # accelerate and the Trainer build their engines the same way, and are guarded as themselves.
    if any(name.partition(".")[0] in ("accelerate", "transformers", "trl") for name in _callers()):
        return None
    from stayfinite.integrations.deepspeed import deepspeed_guard

    return deepspeed_guard(call.owner, policy=call.policy, run_dir=_place_of_all(Path("stayfinite").absolute()))


def _callers() -> Iterator[str]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield str(frame.f_globals.get("__name__", ""))
        frame = frame.f_back


def _place_of_all(wanted: Path) -> Path:
    """A free directory, chosen by rank 0 for all ranks."""
    from torch import distributed

    found = [str(free_place(wanted, again=False))]
    if distributed.is_available() and distributed.is_initialized():
        distributed.broadcast_object_list(found)
    return Path(found[0])


def _remove_from_transformers(trainer: Any, callback: Any) -> None:
    if any(each is callback for each in trainer.callback_handler.callbacks):
        trainer.remove_callback(callback)


def _remove_from_lightning(trainer: Any, callback: Any) -> None:
    trainer.callbacks[:] = [each for each in trainer.callbacks if each is not callback]


def _remove_from_accelerate(_: Any, placed: Any) -> None:
    placed.guard.close()


def _close(_: Any, guard: Any) -> None:
    guard.close()


def _lightning(package: str) -> Seam:
    return Seam(
        module=f"{package}.trainer.trainer",
        kind="Trainer",
        method="__init__",
        add=_add_to_lightning,
        remove=_remove_from_lightning,
    )


SEAMS = (
    Seam(
        module="transformers.trainer",
        kind="Trainer",
        method="__init__",
        add=_add_to_transformers,
        remove=_remove_from_transformers,
    ),
    _lightning("lightning.pytorch"),
    _lightning("pytorch_lightning"),
    Seam(
        module="olmo_core.train.trainer",
        kind="Trainer",
        method="__init__",
        add=_add_to_olmo,
        remove=_remove_from_olmo,
    ),
    Seam(
        module="composer.trainer.trainer",
        kind="Trainer",
        method="__init__",
        add=_refuse_composer,
        remove=lambda _, __: None,
    ),
    Seam(
        module="accelerate.accelerator",
        kind="Accelerator",
        method="prepare",
        add=_add_to_accelerate,
        remove=_remove_from_accelerate,
    ),
    Seam(module="torchtitan.trainer", kind="Trainer", method="__init__", add=_add_to_torchtitan, remove=_close),
    Seam(
        module="megatron.core.optimizer", kind="", method="get_megatron_optimizer", add=_add_to_megatron, remove=_close
    ),
    Seam(
        module="deepspeed.runtime.engine",
        kind="DeepSpeedEngine",
        method="__init__",
        add=_add_to_deepspeed,
        remove=_close,
    ),
)


@contextmanager
def attached(policy: Policy, tell: Tell, seams: Sequence[Seam] = SEAMS) -> Iterator[Attached]:
    """Context in which every new Trainer gets a guard; afterwards all classes, imports and objects are restored."""
    found = Attached(policy=policy, tell=tell)
    undo: list[Callable[[], None]] = []

    def patch(module: ModuleType, seam: Seam) -> None:
        undo.append(_patch(getattr(module, seam.kind) if seam.kind else module, seam, found))

    for seam in seams:
        if seam.module in sys.modules:
            patch(sys.modules[seam.module], seam)
    finder = _Noticing({seam.module: functools.partial(patch, seam=seam) for seam in seams})
    sys.meta_path.insert(0, finder)
    try:
        yield found
    finally:
        sys.meta_path.remove(finder)
        for each in reversed(undo):
            each()
        for owner, guard, seam in found.guards:
            seam.remove(owner, guard)


def _patch(kind: Any, seam: Seam, found: Attached) -> Callable[[], None]:
    """Wrap a method or function to report its return; returns the undo function."""
    before = getattr(kind, seam.method)
    form = inspect.signature(before)

    @functools.wraps(before)
    def method(*args: Any, **kwargs: Any) -> Any:
        returned = before(*args, **kwargs)
        by = str(sys._getframe(1).f_globals.get("__name__", ""))
        given = form.bind(*args, **kwargs).arguments
        owner = args[0] if seam.kind else returned
        found.meet(Call(owner=owner, returned=returned, by=by, policy=found.policy, given=given), seam)
        return returned

    setattr(kind, seam.method, method)
    return lambda: setattr(kind, seam.method, before)


class _Noticing(MetaPathFinder):
    """Import hook that calls back after one of these modules was imported."""

    def __init__(self, noticed: dict[str, Callable[[ModuleType], None]]) -> None:
        self._noticed = noticed

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        """The other finders' spec, with a reporting loader."""
        if name not in self._noticed:
            return None
        for finder in sys.meta_path:
            if finder is not self and (spec := finder.find_spec(name, path, target)) is not None:
                if spec.loader is not None:
                    spec.loader = _Telling(spec.loader, self._noticed[name])
                return spec
        return None


class _Telling(Loader):
    """Wraps a loader and reports when it is done."""

    def __init__(self, loader: Any, tell: Callable[[ModuleType], None]) -> None:
        self._loader, self._tell = loader, tell

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        created: ModuleType | None = self._loader.create_module(spec)
        return created

    def exec_module(self, module: ModuleType) -> None:
        """Load the module as usual, restore its loader, then report."""
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._tell(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)
