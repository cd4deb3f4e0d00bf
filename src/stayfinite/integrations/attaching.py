"""Attach a guard to a running training script from outside, and remove it without a trace.

Loads no framework: when the script imports one, the import is noticed, and one method of the training class
(``Trainer.__init__``, ``Accelerator.prepare``, ``DeepSpeedEngine.__init__``), or a factory function
(``get_megatron_optimizer``), adds the guard when it returns.
"""

import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, NamedTuple

from stayfinite.core.policy import Policy
from stayfinite.doctor.stand_ins import StandIns
from stayfinite.errors import StayfiniteError
from stayfinite.integrations.places import agreed_place

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


class Added(NamedTuple):
    """A guard that was added."""

    remove: Callable[[], None]
    run_dir: Callable[[], Path | None]


class Seam(NamedTuple):
    """A framework method after which a guard can be added."""

    module: str
    """Module of its class; its import is noticed."""
    kind: str
    """Class name; empty for a function of the module."""
    method: str
    add: Callable[[Call], Added | None]
    """Adds a guard; None if there is nothing to guard yet. Raises Owned."""

    def __str__(self) -> str:
        name = f"{self.kind}.{self.method}" if self.kind else self.method
        return f"{self.module.partition('.')[0]} {name}"


@dataclass(kw_only=True)
class Attached:
    """Guards attached so far."""

    policy: Policy
    tell: Tell
    guards: list[tuple[Any, Added]] = field(default_factory=list)
    """Objects with their guards."""
    own: int = 0
    """Objects that the script itself has guarded."""

    @property
    def run_dirs(self) -> list[Path]:
        """Run directories in order, without duplicates."""
        found = [guard.run_dir() for _, guard in self.guards]
        return list(dict.fromkeys(place for place in found if place is not None and place.exists()))

    def meet(self, call: Call, seam: Seam) -> None:
        """Add a guard after the method has returned."""
        if any(each is call.owner for each, _ in self.guards):
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
            self.guards.append((call.owner, guard))
            self.tell(f"hooked into {type(call.owner).__name__}, after {seam}")


def _guarding(guard: Any) -> Added:
    """A guard that is removed by closing it."""
    return Added(guard.close, lambda: guard.run_dir)


def _none_of(callbacks: Iterable[object], kind: type) -> None:
    """Raise Owned if the script has added our callback itself."""
    if any(isinstance(each, kind) for each in callbacks):
        raise Owned


def _add_to_transformers(call: Call) -> Added:
    from stayfinite.integrations.transformers import StayFinite

    trainer = call.owner
    _none_of(trainer.callback_handler.callbacks, StayFinite)
    trainer.add_callback(callback := StayFinite(call.policy))

    def remove() -> None:
        if any(each is callback for each in trainer.callback_handler.callbacks):
            trainer.remove_callback(callback)

    return Added(remove, lambda: callback.run_dir)


def _add_to_lightning(call: Call) -> Added:
    from stayfinite.integrations.lightning import StayFinite

    callbacks = call.owner.callbacks
    _none_of(callbacks, StayFinite)
    # Checkpoint callbacks come last, so insert before them.
    callbacks.insert(0, callback := StayFinite(call.policy))

    def remove() -> None:
        call.owner.callbacks[:] = [each for each in call.owner.callbacks if each is not callback]

    return Added(remove, lambda: callback.run_dir)


def _add_to_olmo(call: Call) -> Added:
    from stayfinite.integrations.olmo import StayFinite

    trainer = call.owner
    _none_of(trainer.callbacks.values(), StayFinite)
    trainer.add_callback("stayfinite", callback := StayFinite(call.policy))

    def remove() -> None:
        if trainer.callbacks.get("stayfinite") is callback:
            del trainer.callbacks["stayfinite"]

    return Added(remove, lambda: callback.place)


def _add_to_accelerate(call: Call) -> Added | None:
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
    place = agreed_place(Path(call.owner.project_dir or ".").absolute())
    settings: dict[str, Any] = {"policy": call.policy, "run_dir": place, "checkpointing": False}
    return _guarding(accelerate_guard(call.owner, models[0], optimizers[0], scheduler, **settings))


def _add_to_torchtitan(call: Call) -> Added:
    from stayfinite.integrations.torchtitan import torchtitan_guard

    asked = [each if isinstance(each, str) else each[0] for each in call.owner.config.override.imports]
    if any(each.startswith("stayfinite.") for each in asked):
        raise Owned
    return _guarding(torchtitan_guard(call.owner, policy=call.policy))


def _add_to_megatron(call: Call) -> Added:
    from stayfinite.integrations.megatron import megatron_guard

    place = agreed_place(Path.cwd())
    return _guarding(megatron_guard(call.given["model_chunks"], call.owner, policy=call.policy, run_dir=place))


def _add_to_deepspeed(call: Call) -> Added | None:
    # accelerate and the Trainer build their engines the same way, and are guarded as themselves.
    if any(name.partition(".")[0] in ("accelerate", "transformers", "trl") for name in _callers()):
        return None
    from stayfinite.integrations.deepspeed import deepspeed_guard

    return _guarding(deepspeed_guard(call.owner, policy=call.policy, run_dir=agreed_place(Path.cwd())))


def _refuse_composer(_: Call) -> Added:
    from stayfinite.guard.checks import not_in_composer

    raise not_in_composer()


def _callers() -> Iterator[str]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield str(frame.f_globals.get("__name__", ""))
        frame = frame.f_back


SEAMS = (
    Seam("transformers.trainer", "Trainer", "__init__", _add_to_transformers),
    Seam("lightning.pytorch.trainer.trainer", "Trainer", "__init__", _add_to_lightning),
    Seam("pytorch_lightning.trainer.trainer", "Trainer", "__init__", _add_to_lightning),
    Seam("olmo_core.train.trainer", "Trainer", "__init__", _add_to_olmo),
    Seam("composer.trainer.trainer", "Trainer", "__init__", _refuse_composer),
    Seam("accelerate.accelerator", "Accelerator", "prepare", _add_to_accelerate),
    Seam("torchtitan.trainer", "Trainer", "__init__", _add_to_torchtitan),
    Seam("megatron.core.optimizer", "", "get_megatron_optimizer", _add_to_megatron),
    Seam("deepspeed.runtime.engine", "DeepSpeedEngine", "__init__", _add_to_deepspeed),
)


@contextmanager
def attached(policy: Policy, tell: Tell, seams: Sequence[Seam] = SEAMS) -> Iterator[Attached]:
    """Context in which every new Trainer gets a guard; afterwards all classes, imports and objects are restored."""
    found = Attached(policy=policy, tell=tell)
    stand_ins = StandIns()

    def patch(module: ModuleType, seam: Seam) -> None:
        owner = getattr(module, seam.kind) if seam.kind else module
        form = inspect.signature(getattr(owner, seam.method))

        def method(before: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            returned = before(*args, **kwargs)
            by = str(sys._getframe(2).f_globals.get("__name__", ""))
            given = form.bind(*args, **kwargs).arguments
            call = Call(owner=args[0] if seam.kind else returned, returned=returned, by=by, policy=policy, given=given)
            found.meet(call, seam)
            return returned

        stand_ins.put(owner, seam.method, method)

    for seam in seams:
        if seam.module in sys.modules:
            patch(sys.modules[seam.module], seam)
    finder = _Noticing({seam.module: functools.partial(patch, seam=seam) for seam in seams})
    sys.meta_path.insert(0, finder)
    try:
        yield found
    finally:
        sys.meta_path.remove(finder)
        stand_ins.off()
        for _, guard in found.guards:
            guard.remove()


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
