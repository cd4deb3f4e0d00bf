"""Unknown names of flags, of keys in a framework's config file, and of call arguments."""

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.settings import plain_name
from stayfinite.inspection.files import known_names as known
from stayfinite.inspection.files.names import nearest
from stayfinite.inspection.files.plan import TELLING, Plan
from stayfinite.inspection.files.sources import Source
from stayfinite.inspection.notes import Edit, Notes
from stayfinite.readers.configs.commands import looks_like_command, split_command, unquoted
from stayfinite.readers.configs.script_settings import whole_tree
from stayfinite.rules.context import ADAPTERS, CHECKPOINTING

_PARSERS = frozenset({"HfArgumentParser", "TrlParser", "H4ArgumentParser"})
_OPEN = lazy_regex(
    r"parse_known_args|add_subparsers|\bparents\s*=|add_argparse_args|LightningCLI|@hydra|hydra\.main|fire\.Fire|"
    r"tyro\.cli|"
    r"jsonargparse|fromfile_prefix_chars|simple_parsing|sys\.argv|allow_extra|OmegaConf|exec\(|return_remaining_strings"
)
"""Code that lets a program accept undeclared flags."""


_CALLED = ("parser", "ap", "argparser")  # usual names of a parser


@dataclass(slots=True)
class Declared:
    """The command-line interface of a script."""

    flags: set[str] = field(default_factory=set)
    """As declared, with dashes."""
    names: set[str] = field(default_factory=set)
    """Fields of a parser that treats `-` and `_` alike."""
    whole: bool = True
    """Whether the list is complete."""

    def __bool__(self) -> bool:
        return bool(self.flags or self.names)

    def takes(self, flag: str) -> bool:
        """Whether this is a declared flag, an argparse abbreviation, or a negation."""
        if flag in self.flags or flag in ("-h", "--help", "--local_rank", "--local-rank"):
            return True
        plain = plain_name(flag)
        if plain in self.names or plain.removeprefix("no_") in self.names:
            return True
        return flag.startswith("--") and any(each.startswith(flag) for each in self.flags)

    @property
    def known(self) -> set[str]:
        """All names in comparable form."""
        return self.names | {plain_name(flag) for flag in self.flags if flag.startswith("--")}


def declared_in(text: str) -> Declared:
    """Read a script's flags; falsy if it visibly declares none."""
    tree = whole_tree(text)
    if tree is None:
        return Declared(whole=False)
    declared = Declared(whole=not _OPEN.search(text))
    classes = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    functions = {node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            _take_call(node, declared, classes, functions)
        elif isinstance(node, ast.Assign) and _comes_from_elsewhere(node, functions):
            declared.whole = False
    return declared


def _comes_from_elsewhere(node: ast.Assign, functions: set[str]) -> bool:
    """Whether a function of another file creates the parser: `parser = get_argument_parser()`."""
    target, call = node.targets[0], node.value
    if not (isinstance(target, ast.Name) and target.id in _CALLED and isinstance(call, ast.Call)):
        return False
    name = _last_name(call.func)
    return not name.endswith("Parser") and name != "add_config_arguments" and name not in functions


def _take_call(call: ast.Call, declared: Declared, classes: dict[str, ast.ClassDef], functions: set[str]) -> None:
    name = _last_name(call.func)
    texts = [each.value for each in call.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    if name in ("add_argument", "option"):
        flags = {each for each in texts if each.startswith("-")}
        if not texts:
            declared.whole = False  # a computed name
        declared.flags |= {part for each in flags for part in each.split("/")}
        actions = [_last_name(keyword.value) for keyword in call.keywords if keyword.arg == "action"]
        if "BooleanOptionalAction" in actions:
            declared.flags |= {f"--no-{each[2:]}" for each in flags if each.startswith("--")}
    elif name.startswith("DEFINE_") and texts:
        declared.flags |= {f"--{texts[0]}", f"--no{texts[0]}"}
    elif name == "add_config_arguments":
        declared.flags |= {"--deepspeed", "--deepspeed_config", "--deepscale", "--deepscale_config"}
    elif name in _PARSERS or ("ArgumentParser" in name and any(each in classes for each in _class_names(call))):
        for each in _class_names(call):
            _take_class(each, declared, classes)
    elif any(isinstance(each, ast.Name) and each.id in _CALLED for each in call.args):
        declared.whole = declared.whole and name in functions


def _class_names(call: ast.Call) -> Iterator[str]:
    for argument in [*call.args, *(keyword.value for keyword in call.keywords)]:
        for each in argument.elts if isinstance(argument, (ast.Tuple, ast.List)) else [argument]:
            yield _last_name(each)


def _take_class(name: str, declared: Declared, classes: dict[str, ast.ClassDef], depth: int = 0) -> None:
    if name in classes and depth < 8:
        definition = classes[name]
        for statement in definition.body:
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                declared.names.add(statement.target.id.lower())
        for parent in definition.bases:
            _take_class(_last_name(parent), declared, classes, depth + 1)
    elif name in ("TrainingArguments", "Seq2SeqTrainingArguments"):
        declared.names |= known.TRAINING_ARGUMENTS
    elif re.search(r"Config$|Arguments$", name):
        declared.names |= _TRANSFORMERS
        declared.whole = False
    elif name != "object":
        declared.whole = False


def _last_name(node: ast.expr) -> str:
    """`name` of `name` and `module.name`; empty for other expressions."""
    return getattr(node, "attr", "") or getattr(node, "id", "")


_TRANSFORMERS = known.TRAINING_ARGUMENTS | known.EXAMPLE_SCRIPTS | known.TRL
_DIALECTS: dict[str, frozenset[str]] = {
    "transformers": _TRANSFORMERS,
    "LLaMA-Factory": _TRANSFORMERS | known.LLAMA_FACTORY,
    "axolotl": known.AXOLOTL | known.TRAINING_ARGUMENTS | known.TRL,
    "accelerate": known.ACCELERATE_FILE,
    "DeepSpeed": known.DEEPSPEED,
}
_SECTIONS: dict[str, tuple[str, frozenset[str]]] = {
    "trainer": ("Lightning", known.LIGHTNING_TRAINER),
    "zero_optimization": ("DeepSpeed", known.ZERO),
    "fp16": ("DeepSpeed", known.HALF_SECTIONS),
    "bf16": ("DeepSpeed", known.HALF_SECTIONS),
}
_CALLS: dict[str, frozenset[str]] = {
    "TrainingArguments": known.TRAINING_ARGUMENTS,
    "Seq2SeqTrainingArguments": known.TRAINING_ARGUMENTS,
    "LoraConfig": known.LORA,
    "BitsAndBytesConfig": known.QUANTIZATION,
    "Accelerator": known.ACCELERATOR,
    **dict.fromkeys(
        ("SFTConfig", "DPOConfig", "GRPOConfig", "ORPOConfig", "KTOConfig", "RewardConfig", "PPOConfig", "CPOConfig"),
        known.TRAINING_ARGUMENTS | known.TRL,
    ),
}
_ANYWHERE = frozenset().union(
    *_DIALECTS.values(), *_CALLS.values(), known.LIGHTNING_TRAINER, known.LAUNCHERS, ADAPTERS, CHECKPOINTING
)
"""A name of another framework, or one that many programs have, is not a typo."""
_FEW, _SHARE = 4, 0.6
"""A file uses a dialect if at least this many of its keys, and this share of them, belong to it."""
_SCRIPT = lazy_regex(r"\S+\.py")
_FLAG = lazy_regex(r"--?[A-Za-z][\w.\-]*")


@dataclass(frozen=True, slots=True)
class _Looked:
    """The result for one source."""

    count: int = 0
    whose: str = ""
    strange: tuple[tuple[str, str], ...] = ()


def look_at_flags(plan: Plan, notes: Notes) -> None:
    """Compare every name with those of its script or framework."""
    looked = [found for source in plan.sources for found in _look(source, plan) if found.count]
    strange = [each for found in looked for each in found.strange]
    notes.remark("plan.unknown_settings", *strange)
    notes.edits.extend(edit for source in plan.sources for edit in _renamings(source, strange))
    seen = ", ".join(f"{found.count} of {found.whose}" for found in looked)
    notes.check("Flags", "option names", "unknown-setting", seen=seen, otherwise="unknown for these files")


def _renamings(source: Source, strange: Sequence[tuple[str, str]]) -> Iterator[Edit]:
    for setting in source.settings if source.kind in ("yaml", "json", "toml") else ():
        for text, where in strange:
            suggestion = re.search(r"did you mean (?:[\w.]+\.)?(\w+)\?$", text)
            if suggestion and where == setting.where and text.startswith(f"{setting.name} "):
                yield Edit(cause="unknown-setting", setting=setting, name=suggestion.group(1))


def _look(source: Source, plan: Plan) -> Iterator[_Looked]:
    if source.kind == "command":
        yield from _in_command(source.text, source.name, plan)
    elif source.kind == "shell":
        for where, text in source.settings.notes:
            if looks_like_command(text):
                yield from _in_command(text, where, plan)
    elif source.kind in ("yaml", "json", "toml"):
        yield from _in_file(source)
    elif source.kind in ("script", "notebook"):
        yield from _in_calls(source)


def _in_command(text: str, where: str, plan: Plan) -> Iterator[_Looked]:
    words = [unquoted(token) for token, _ in split_command(text) if token]
    place = next((index for index, word in enumerate(words) if _SCRIPT.fullmatch(word)), None)
    launching, flags = _flags(words[: place or 0]), _flags(words if place is None else words[place + 1 :])
    if launching:
        names = {plain_name(flag) for flag in launching}
        yield _Looked(len(launching), "the launcher", tuple(_misspelt(names, known.LAUNCHERS, where, "--")))
    script = None if place is None else _script(plan.sources, words[place])
    declared = Declared() if script is None else declared_in(script.text)
    if script is None or not declared:
        names = {plain_name(flag) for flag in flags}
        if len(names & TELLING) >= 2:
            own = _plurals(_TRANSFORMERS) if script is None and place is not None else frozenset()
            yield _Looked(len(names), "transformers", tuple(_misspelt(names - own, _TRANSFORMERS, where, "--")))
        return
    strange = []
    for flag in flags:
        if declared.takes(flag):
            continue
        plain = plain_name(flag)
        close = next((each for each in declared.flags if plain_name(each) == plain), None)
        suggestion = close or nearest(plain, declared.known)
        if suggestion is not None:
            flagged = (each for each in declared.flags if plain_name(each) == suggestion)
            spelled = close or next(flagged, f"--{suggestion}")
            strange.append((f"{script.name} has no {flag}; did you mean {spelled}?", where))
        elif declared.whole and flag.startswith("--"):
            strange.append((f"{script.name} does not define {flag}", where))
    yield _Looked(len(flags), PurePath(script.name).name, tuple(strange))


def _plurals(words: frozenset[str]) -> frozenset[str]:
    """Each word in singular and plural: an unavailable program may declare such a flag."""
    return frozenset(word.removesuffix("s") if word.endswith("s") else f"{word}s" for word in words)


def _flags(words: Sequence[str]) -> list[str]:
    found = (word.partition("=")[0] for word in words)
    return list(dict.fromkeys(word for word in found if _FLAG.fullmatch(word)))


def _script(sources: Sequence[Source], name: str) -> Source | None:
    same = (each for each in sources if each.kind == "script" and PurePath(each.name).name == PurePath(name).name)
    return next(same, None)


def _in_file(source: Source) -> Iterator[_Looked]:
    levels: dict[str, dict[str, str]] = {}
    for setting in source.settings:
        steps = setting.name.split(".")
        for depth in range(min(len(steps), 3)):
            levels.setdefault(".".join(steps[:depth]), {}).setdefault(steps[depth], setting.where)
    top = levels.get("", {})
    whose, words = max(_DIALECTS.items(), key=lambda each: (len(set(top) & each[1]), -len(each[1])))
    deepspeed = bool({"zero_optimization", "train_micro_batch_size_per_gpu"} & set(top))
    if deepspeed:
        whose, words = "DeepSpeed", known.DEEPSPEED
    shared = set(top) & words
    if (len(shared) >= _FEW and len(shared) >= _SHARE * len(top)) or (deepspeed and len(shared) >= 2):
        yield _Looked(len(top), whose, tuple(_misspelt(set(top), words, "", "", top)))
    for section, (owner, names) in _SECTIONS.items():
        keys = levels.get(section, {})
        if owner == "DeepSpeed" and not deepspeed:
            continue
        if len(set(keys) & names) >= max(3, _SHARE * len(keys)):
            strange = tuple(_misspelt(set(keys), names, "", f"{section}.", keys))
            yield _Looked(len(keys), f"{owner}'s {section}", strange)


def _misspelt(
    names: set[str], words: frozenset[str], where: str, prefix: str, places: dict[str, str] | None = None
) -> Iterator[tuple[str, str]]:
    for name in sorted(names - words - _ANYWHERE):
        suggestion = nearest(plain_name(name), words)
        if suggestion is not None and suggestion not in names and len(name) > 3:
            place = (places or {}).get(name, where)
            yield f"{prefix}{name} is unknown; did you mean {prefix}{suggestion}?", place


def _in_calls(source: Source) -> Iterator[_Looked]:
    lightning = re.search(r"\blightning\b|pytorch_lightning", source.text) is not None
    others = re.search(r"from (?!(?:pytorch_)?lightning)[\w.]+ import [^\n#]*\bTrainer\b", source.text) is not None
    calls: dict[str, dict[str, str]] = {}
    for setting in source.settings:
        call, _, keyword = setting.name.rpartition(".")
        last = call.rpartition(".")[2]
        if last in _CALLS or (lightning and last == "Trainer" and not others):
            calls.setdefault(last, {}).setdefault(keyword, setting.where)
    for call, keywords in calls.items():
        if re.search(rf"\bclass {call}\b", source.text):
            continue
        words = _CALLS.get(call, known.LIGHTNING_TRAINER)
        yield _Looked(len(keywords), call, tuple(_misspelt(set(keywords), words, "", f"{call}.", keywords)))
