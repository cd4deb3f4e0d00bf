"""Follow models from where they are made to their optimizer or trainer: in which dtype the trained weights are.

A cast is no fault by itself: batches, frozen encoders, EMA copies and models that are only evaluated are cast too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.configs.program.state import (
    Call,
    External,
    Instance,
    Made,
    Method,
    Row,
    Table,
    Unknown,
    Value,
)
from stayfinite.readers.configs.scalars import dtype_name
from stayfinite.readers.configs.script_calls import is_optimizer

if TYPE_CHECKING:
    from stayfinite.readers.configs.program.state import Run

_CASTS = {"half": "float16", "bfloat16": "bfloat16", "float": "float32", "double": "float64", "to": "", "type": ""}
_LOADED_AS = ("torch_dtype", "dtype")
_TRAINER = lazy_regex(r"\w*Trainer|fit")
"""`Trainer(model, args)`, `trainer.fit(model)`."""
_STEPS = frozenset({"backward", "manual_backward", "step", "fit"})
"""From here on the training runs; a later cast is for evaluation or for saving."""
_OF_A_MODEL = frozenset(
    {"parameters", "named_parameters", "train", "eval", "cuda", "half", "requires_grad_", "state_dict"}
)
_MOST_SOURCES = 300
UNKNOWN = "unknown"


@dataclass(slots=True)
class Cast:
    """The last cast of a model, or the dtype that it was loaded in."""

    dtype: str
    name: str
    """The call, as settings show it."""
    source: str
    line: int
    main_line: int
    doubtful: bool


class Weights:
    """The models of a script: what they were cast to, which of them are trained, and which are frozen."""

    def __init__(self) -> None:
        self._casts: dict[Any, Cast] = {}
        self._trained: dict[Any, Any] = {}
        self._frozen: set[Any] = set()
        self._models: set[Any] = set()
        self._kept: list[Any] = []
        self.settled: dict[Any, Cast | None] = {}
        """The cast of each trained model when its training began; None if it was never cast."""

    def called(self, run: Run, name: str, called: Value, call: Call, result: Value) -> None:
        """Take notice of a call that casts, freezes, trains or makes a model."""
        last = name.rpartition(".")[2]
        model = _receiver(called)
        if model is not None and last in _OF_A_MODEL:
            self._models.add(self._key(model))
        if model is not None and last in _CASTS:
            self._cast(run, model, name, _given_dtype(last, call, called))
        elif model is not None and (last == "eval" or (last == "requires_grad_" and _is_false(call.first))):
            self._frozen.add(self._key(model))
        elif _TRAINER.fullmatch(last):
            trained = call.keywords.get("model", call.first)
            if trained is not None and isinstance(trained.data, (Unknown, Made, Instance)):
                self._models.add(self._key(trained.data))
                self._train([trained])
        elif is_optimizer(name) or "optim" in last.lower() or "optim" in run.frame.target.lower():
            self._train([*call.positional, *call.keywords.values()])
        else:
            dtype = next((call.keywords[key] for key in _LOADED_AS if key in call.keywords), None)
            if dtype is not None and isinstance(result.data, (Unknown, Made, Instance)):
                self._cast(run, result.data, f"{name}.{_key_of(dtype, call)}", dtype)
        if last in _STEPS:
            self.settle()

    def froze(self, part: Value) -> None:
        """`parameter.requires_grad = False`, for the parameters of a model."""
        for model in self._models_in([part.data]):
            self._frozen.add(self._key(model))

    def settle(self) -> None:
        """The training begins: what is trained now has the dtype that it has now."""
        for key, model in list(self._trained.items()):
            if key in self.settled:
                continue
            parts = model.attributes.values() if isinstance(model, Instance) else ()
            within = [self._key(each.data) for each in parts]
            casts = [self._casts.get(each) for each in within if each not in self._frozen and each not in self.settled]
            self.settled[key] = self._casts.get(key) or next((each for each in casts if each is not None), None)

    @property
    def has_halves(self) -> bool:
        """Whether any model was cast to fp16, or loaded in it."""
        return any(each.dtype == "float16" for each in self._casts.values())

    def _cast(self, run: Run, model: Any, name: str, dtype: Value | None) -> None:
        if dtype is not None:
            text = dtype.data if isinstance(dtype.data, str) else UNKNOWN
            cast = Cast(text, name, dtype.origin.source, dtype.line, run.main_line, run.in_doubt)
            self._casts[self._key(model)] = cast

    def _train(self, given: list[Value]) -> None:
        for model in self._models_in([each.data for each in given]):
            self._trained.setdefault(self._key(model), model)

    def _models_in(self, given: list[Any]) -> list[Any]:
        """The models that these values are, hold or were computed from: of `[p for p in model.parameters()]`."""
        work, found = list(given), []
        seen: set[Any] = set()
        while work and len(seen) < _MOST_SOURCES:
            data = work.pop()
            key = self._key(data)
            if key in seen:
                continue
            seen.add(key)
            if key in self._models or key in self._casts:
                found.append(data)
            if isinstance(data, Unknown) and key not in self._models:
                work.extend(data.sources)
            elif isinstance(data, Method):
                work.append(data.of.data)
            elif isinstance(data, External) and "." in data.full:
                work.append(External(data.name.rpartition(".")[0], data.full.rpartition(".")[0], data.imported))
            elif isinstance(data, Table):
                work.extend(each.data for each in data.entries.values())
            elif isinstance(data, Row) and "items" in data.cell:
                work.extend(each.data for each in data.items)
        return found

    def _key(self, data: Any) -> Any:
        """What stays the same for one object; a name that the script never sets stands for itself."""
        if isinstance(data, External):
            return data.full
        self._kept.append(data)  # an identity holds while the object lives
        return id(data)


def _receiver(called: Value) -> Any:
    """`model` of `model.half`."""
    data = called.data
    if isinstance(data, Method):
        return data.of.data
    if isinstance(data, External) and "." in data.full and not data.imported:
        return External(data.name.rpartition(".")[0], data.full.rpartition(".")[0], data.imported)
    return None


def _given_dtype(last: str, call: Call, called: Value) -> Value | None:
    """The dtype of `.half()`, of `.to(device, dtype)`; None if it stays as it is."""
    if _CASTS[last]:
        return Value(_CASTS[last], called.origin, called.line)
    given = [each for key, each in call.keywords.items() if key == "dtype"]
    return next((each for each in (*given, *call.positional) if _is_dtype(each)), None)


def _is_dtype(value: Value) -> bool:
    if isinstance(value.data, str):
        return dtype_name(f"torch.{value.data}") is not None
    return not value.is_scalar and "dtype" in value.text


def _key_of(value: Value, call: Call) -> str:
    return next(key for key, each in call.keywords.items() if each is value)


def _is_false(value: Value | None) -> bool:
    return value is not None and value.data is False
