"""A script is read as on the card that was named, and as the command starts it."""

from pathlib import Path

import pytest

from readers.configs.scripts.styles import STYLES
from stayfinite.inspection.files.inspecting import inspect_files
from stayfinite.readers.configs import read_config
from stayfinite.readers.configs.program.state import Surroundings
from stayfinite.rules.cards import NO_CARD, Card, card_asked_for

BF16_OR_NOT = """\
import torch
from transformers import AutoModelForSeq2SeqLM, Trainer, TrainingArguments
bf16 = torch.cuda.is_bf16_supported()
model = AutoModelForSeq2SeqLM.from_pretrained("google/mt5-small")
Trainer(model, TrainingArguments("out", learning_rate=1e-4, bf16=bf16, fp16=not bf16)).train()
"""

ON_DEMAND = """\
import argparse, os
from transformers import AutoModelForSeq2SeqLM, Trainer, TrainingArguments
parser = argparse.ArgumentParser()
parser.add_argument("--half", action="store_true")
parser.add_argument("--lr", type=float, default=1e-4)
args = parser.parse_args()
model = AutoModelForSeq2SeqLM.from_pretrained(os.environ.get("MODEL", "bert-base-uncased"))
Trainer(model, TrainingArguments("out", learning_rate=args.lr, fp16=args.half)).train()
"""


def causes(*arguments: str, gpu: str | None = None) -> set[str]:
    return {finding.cause for finding in inspect_files(arguments, gpu=gpu).findings}


@pytest.mark.parametrize("name", ["none", "None", "cpu"])
def test_no_card_is_a_card_that_can_be_asked_for(name: str) -> None:
    assert card_asked_for(name) is NO_CARD


def test_without_a_card_branches_on_cuda_are_read_as_on_the_cpu(here: Path) -> None:
    (here / "train.py").write_text(STYLES["kwargs by the device"].files["train.py"])
    assert causes("train.py")
    assert causes("train.py", gpu="none") == set()
    settings = read_config("train.py", Surroundings(card=NO_CARD))
    assert settings.value("from_pretrained.torch_dtype") == "float32"
    assert settings.value("fp16") is False


def test_without_a_card_the_card_is_not_judged(here: Path) -> None:
    (here / "train.py").write_text(BF16_OR_NOT)
    lines = [line for line in inspect_files(["train.py"], gpu="none").lines if line.group == "GPU"]
    assert [line.status for line in lines] == ["skip"]


@pytest.mark.parametrize(("gpu", "expected"), [(None, set()), ("T4", {"fp16-overflow-model-family"}), ("A100", set())])
def test_what_the_card_computes_in_decides_once_it_is_named(gpu: str | None, expected: set[str], here: Path) -> None:
    (here / "train.py").write_text(BF16_OR_NOT)
    assert causes("train.py", gpu=gpu) == expected


def test_a_capability_is_that_of_the_card(here: Path) -> None:
    (here / "train.py").write_text(
        "import torch\nmajor, minor = torch.cuda.get_device_capability()\n"
        "torch.autocast('cuda', dtype=torch.bfloat16 if major >= 8 else torch.float16)\n"
    )

    def dtype(card: Card) -> object:
        return read_config("train.py", Surroundings(card=card)).value("autocast.dtype")

    assert (dtype(card_asked_for("V100")), dtype(card_asked_for("H100"))) == ("float16", "bfloat16")


def test_what_the_command_says_reaches_the_values_of_the_script(here: Path) -> None:
    (here / "train.py").write_text(ON_DEMAND)
    assert causes("train.py") == set()
    assert causes("python train.py --half") == set()
    assert causes("MODEL=google/mt5-small python train.py --half") == {"fp16-overflow-model-family"}
    assert causes("python train.py --lr 50") == {"lr-too-high"}


def test_a_finding_names_the_line_of_an_imported_module(here: Path) -> None:
    (here / "settings.py").write_text("import torch\n\nDTYPE = torch.float16\n")
    (here / "train.py").write_text(
        "from settings import DTYPE\nfrom transformers import AutoModel, Trainer, TrainingArguments\n"
        "model = AutoModel.from_pretrained('bert-base-uncased', torch_dtype=DTYPE)\n"
        "Trainer(model, TrainingArguments('out', fp16=True)).train()\n"
    )
    (finding,) = inspect_files(["train.py"]).findings
    assert (finding.cause, finding.where) == ("double-fp16", "settings.py:3")
