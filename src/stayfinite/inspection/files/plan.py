"""The planned training: the settings of all sources, and the kind of training they describe."""

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.settings import Expression, Setting, Settings, in_script
from stayfinite.inspection.files.names import last_step
from stayfinite.inspection.files.sources import Source
from stayfinite.readers.configs.script_settings import whole_tree
from stayfinite.rules.cards import Card
from stayfinite.rules.context import ADAPTERS, LR, Context, understand
from stayfinite.rules.known import Known, is_on, number_in, switched_on, written
from stayfinite.rules.model_families import family_of
from stayfinite.rules.optimization.planned_rate import EPOCHS, STEPS
from stayfinite.rules.precision_settings import precision_of, weights_of


def lines_switched_off(sources: Sequence[Source], settings: Settings) -> frozenset[str]:
    """Locations (`train.py:111`) that these settings never reach: ``if args.use_adam:`` with the flag off."""
    return frozenset(
        f"{source.name}:{line}"
        for source in sources
        if source.kind == "script"
        for branch in _branches(source.text, settings)
        for line in _lines(branch)
    )


class EitherOr:
    """Pairs of locations in opposite branches of a condition."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._pairs = [
            (source.name, _lines(node.body), _lines(node.orelse))
            for source in sources
            if source.kind == "script"
            for node in _conditions(source.text)
            if node.orelse
        ]

    def __contains__(self, places: tuple[str, str]) -> bool:
        (one, first), (other, second) = (_split(place) for place in places)
        return one == other and any(
            name == one and ((first in yes and second in no) or (first in no and second in yes))
            for name, yes, no in self._pairs
        )


def _split(place: str) -> tuple[str, int]:
    name, _, line = place.rpartition(":")
    return (name, int(line)) if line.isdigit() else (place, 0)


def _lines(statements: list[ast.stmt]) -> range:
    last = statements[-1]
    return range(statements[0].lineno, (last.end_lineno or last.lineno) + 1)


def _conditions(text: str) -> list[ast.If]:
    tree = whole_tree(text)
    return [] if tree is None else [node for node in ast.walk(tree) if isinstance(node, ast.If)]


def _branches(text: str, settings: Settings) -> Iterator[list[ast.stmt]]:
    for node in _conditions(text):
        taken = _value_of_condition(node.test, settings)
        branch = [] if taken is None else node.orelse if taken else node.body
        if branch:
            yield branch


def _value_of_condition(test: ast.expr, settings: Settings) -> bool | None:
    """The value of a condition made of switches; None if unknown. Only False is reliable."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        value = _value_of_condition(test.operand, settings)
        return None if value is None else not value
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return False if any(_value_of_condition(each, settings) is False for each in test.values) else None
    if not isinstance(test, ast.Attribute):
        return None
    # `args.fp16` is the setting. A bare name may be reassigned, and an enabled flag may be disabled later.
    setting = settings.find(test.attr)
    return False if setting is not None and setting.value is False and setting.plain == test.attr.lower() else None


RATES = (*LR, "peak_lr", "init_lr", "lr0", "initial_lr")
TRAINER_ARGUMENTS = r"\w*(?:TrainingArguments|SFTConfig|DPOConfig|GRPOConfig|ORPOConfig|KTOConfig|RewardConfig)"
_ARGUMENTS = lazy_regex(rf"{TRAINER_ARGUMENTS}\.")
_TRAINER = lazy_regex(r"(?:^|\.)\w*Trainer\.(?:args|train_dataset)$")
_CAST = lazy_regex(r"\.(?:to|type)\.dtype$")
"""A cast of a batch or a model, which is not what the training computes in."""
TELLING = frozenset(
    {
        "per_device_train_batch_size", "num_train_epochs", "save_total_limit", "eval_strategy", "evaluation_strategy",
        "load_best_model_at_end", "per_device_eval_batch_size", "lr_scheduler_type", "logging_steps", "save_strategy",
        "report_to", "remove_unused_columns", "overwrite_output_dir", "metric_for_best_model", "model_name_or_path",
    }
)  # fmt: skip
"""Names that occur only in TrainingArguments and its derivatives."""
_PREFERENCE = lazy_regex(
    r"(?:\b|_)(?:dpo|ppo|grpo|rloo|kto|orpo|simpo|cpo|rlhf|reinforce|gkd|online_dpo)(?:\b|_|config|trainer)",
    re.IGNORECASE,
)
_SOFT_PROMPT = lazy_regex(r"prompt_?tuning|prefix_?tuning|prompt_?encoder|p_?tuning|soft_?prompt", re.IGNORECASE)
_ADAPTER_CALLS = lazy_regex(
    r"(?:^|\.)(?:get_peft_model|LoraConfig|AdaLoraConfig|PeftModel|LoHaConfig|IA3Config|peft_config)\b"
)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The settings of one run. The command's values take precedence, then the later file's."""

    sources: Sequence[Source]
    card: Card | None = None

    @cached_property
    def settings(self) -> Settings:
        """Settings of all sources, by precedence."""
        given = [source for source in self.sources if not source.named_by]
        named = [source for source in self.sources if source.named_by]
        commands = [source for source in given if source.kind == "command"]
        files = [source for source in given if source.kind != "command"]
        return sum((source.settings for source in (*commands, *reversed(files), *named)), Settings())

    @cached_property
    def context(self) -> Context:
        """Model, precision, optimizer and so on, independent of the framework."""
        certain = Settings(
            [each for each in self.known if not each.doubtful and not _CAST.search(each.name)], self.settings.notes
        )
        whole = understand(Settings(self.known, self.settings.notes))
        return replace(whole, precision=precision_of(certain, ()), weights=weights_of(certain))

    @cached_property
    def precision(self) -> Known | None:
        """The compute precision: as set, or fp16 if there is a loss scaler."""
        known = self.context.precision
        scalers = (each for each in self.settings if last_step(each) == "gradscaler" and each.value is True)
        scaler = next((each for each in scalers if each.where not in self.switched_off), None)
        return Known("fp16", scaler.where, f"{scaler.name}()") if known is None and scaler is not None else known

    def find(self, *names: str) -> Setting | None:
        """The setting with the first of these names that has a known value."""
        setting = self.settings.find(*names)
        if setting is None or isinstance(setting.value, Expression):
            return None
        if setting.doubtful:  # branches disagree, so the value is unknown
            others = self.settings.all(last_step(setting))
            return setting if all(each.value == setting.value for each in others) else None
        return setting

    def number(self, *names: str) -> Known | None:
        """The first of these names that is a number, as written. Unlike `Context`, nothing is treated as 0."""
        setting = self.numbered(*names)
        return None if setting is None else written(setting, number_in(setting.value))

    def numbered(self, *names: str) -> Setting | None:
        """The setting with the first of these names that is a number."""
        found = (self.find(name) for name in names)
        return next((each for each in found if each is not None and number_in(each.value) is not None), None)

    def on(self, *names: str) -> Known | None:
        """The first of these switches that is on."""
        setting = self.find(*names)
        return written(setting, True) if setting is not None and is_on(setting.value) is True else None

    def word(self, *names: str) -> str:
        """The value in lowercase; empty if unknown."""
        setting = self.find(*names)
        return "" if setting is None or setting.value is None else str(setting.value).strip().lower()

    @cached_property
    def known(self) -> list[Setting]:
        """The settings whose value the sources give."""
        return [setting for setting in self.settings if not isinstance(setting.value, Expression)]

    def named(self, pattern: str) -> Setting | None:
        """The first setting whose whole name matches."""
        return next((setting for setting in self.settings if re.fullmatch(pattern, setting.name)), None)

    def lines(self, source: Source, pattern: re.Pattern[str]) -> Iterator[tuple[str, str]]:
        """Matching lines of a script that these settings reach, with their locations: `train.py:111`."""
        for number, line in enumerate(source.text.splitlines(), 1):
            where = f"{source.name}:{number}"
            if pattern.search(line) and where not in self.switched_off:
                yield line.strip(), where

    def text_of(self, name: str) -> str:
        """The text of a script; empty if unavailable."""
        return next((source.text for source in self.scripts if source.name == name), "")

    def says(self, pattern: str | re.Pattern[str]) -> bool:
        return self.settings.search(pattern) is not None

    @cached_property
    def is_transformers(self) -> bool:
        """Whether these are TrainingArguments, directly or through another framework."""
        if self.handed_to_trainer or any(_TRAINER.search(setting.name) for setting in self.settings):
            return True
        names = {last_step(setting) for setting in self.settings}
        return len(names & TELLING) >= 3

    @cached_property
    def handed_to_trainer(self) -> list[Setting]:
        """Arguments that a script passes to its own TrainingArguments; [] if they come from elsewhere."""
        return [setting for setting in self.settings if _ARGUMENTS.match(setting.name)]

    @cached_property
    def switched_off(self) -> frozenset[str]:
        """Locations in scripts that these settings never reach: `train.py:111`."""
        return lines_switched_off(self.scripts, self.settings)

    @cached_property
    def either_or(self) -> EitherOr:
        """Mutually exclusive locations in scripts."""
        return EitherOr(self.scripts)

    @cached_property
    def framework(self) -> str:
        """`axolotl`, `llama-factory`, `transformers`, or empty."""
        if not self.scripts and self.find("base_model") and self.find("sequence_len", "micro_batch_size"):
            return "axolotl"  # its trainings are config files
        own = (self.find("template"), self.find("cutoff_len"))  # the words of a script are its own
        if self.find("finetuning_type") or all(each is not None and not in_script(each.where) for each in own):
            return "llama-factory"
        return "transformers" if self.is_transformers else ""

    @cached_property
    def scripts(self) -> list[Source]:
        return [source for source in self.sources if source.kind in ("script", "notebook")]

    @cached_property
    def trains(self) -> bool:
        """Whether this is a training, not inference."""
        known = (
            *RATES, *EPOCHS, *STEPS, "optimizer", "optim", "trainer_train", "backward", "train_batch_size",
            "train_micro_batch_size_per_gpu", "gradient_accumulation_steps",
        )  # fmt: skip
        return self.is_transformers or self.settings.find(*known) is not None

    @cached_property
    def adapters(self) -> Known | None:
        """The setting that enables adapter training; None if the whole model is trained or unknown."""
        kind = self.find("finetuning_type", "tuner_type", "train_type", "sft_type")
        if kind is not None and isinstance(kind.value, str):
            return written(kind, True) if re.search(r"lora|adapter|oft|ia3", kind.value, re.IGNORECASE) else None
        if self.framework == "axolotl":
            axolotl = self.find("adapter")
            return written(axolotl, True) if axolotl is not None and axolotl.value else None
        switch = self.find("use_peft", "use_lora", "lora_enable", "enable_lora")
        if switch is not None and is_on(switch.value) is False:
            return None
        for setting in self.settings:
            if _ADAPTER_CALLS.search(setting.name) and "get_peft_config" not in str(setting.value):
                return written(setting, True)
        return switched_on(self.settings, *ADAPTERS, "lora_dim", "lora_dimension")

    @cached_property
    def soft_prompt(self) -> bool:
        return self.says(_SOFT_PROMPT) or self.number("pre_seq_len", "num_virtual_tokens") is not None

    @cached_property
    def preference(self) -> bool:
        """Whether it learns from rewards or preferences."""
        return self.says(_PREFERENCE)

    @cached_property
    def family(self) -> Known | None:
        """The model family if it is known to fail in fp16; by the model name only."""
        model = self.context.model
        family = None if model is None or isinstance(model.value, Expression) else family_of(str(model.value))
        if model is not None and family is not None:
            return Known(family, model.where, str(model.value))
        for setting, name in self._classes():
            family = family_of(name)
            if family is not None:
                return Known(family, setting.where, setting.name)
        return None

    def _classes(self) -> Iterator[tuple[Setting, str]]:
        """`T5ForConditionalGeneration.from_pretrained` -> `T5`."""
        own = {name for source in self.scripts for name in re.findall(r"(?m)^\s*class (\w+)", source.text)}
        for setting in self.settings:
            first = setting.name.partition(".")[0]
            found = re.match(r"(?!Auto)([A-Z]\w*?)(?:For[A-Z]\w+|Model|LMHeadModel)$", first)
            if found and first not in own:  # a class of the script itself has its own weights
                yield setting, found.group(1)


def shown(setting: Setting) -> str:
    """`learning_rate 3e-4 (train.yaml:3)`, with the last part of its name."""
    value = f"{setting.value:g}" if isinstance(setting.value, float) else str(setting.value)
    return f"{last_step(setting)} {value} ({setting.where})"
