"""`stayfinite check` from files alone: every planted fault is found, and plans that work are left in peace."""

import dataclasses
from pathlib import Path

import pytest

from cases.reading import read_cases
from inspection.files.faulty import ARGPARSE, BERT, LOOP, PLANTED, Planted
from inspection.files.healthy import COMMANDS, HEALTHY
from stayfinite.inspection.files.inspecting import inspect_files
from stayfinite.inspection.inspection import Inspection
from stayfinite.readers.configs import looks_like_config

GROUPS = ["Precision", "Precision", "Learning rate", "Schedule", "Clipping", "Batch", "Memory savers", "Lengths",
          "Evaluation and saving", "Flags", "GPU", "Code"]  # fmt: skip
"""Of a check list, in this order. With a card there is a second line for it, and a broken file gets one as well."""


def checked(planted: Planted, folder: Path) -> Inspection:
    for name, text in planted.files.items():
        (folder / name).write_text(text)
    return inspect_files(planted.given or tuple(planted.files), gpu=planted.gpu)


@pytest.mark.parametrize("planted", PLANTED, ids=lambda each: f"{each.cause}-{'-'.join(each.files) or 'command'}")
def test_a_planted_fault_is_found_with_its_place(planted: Planted, here: Path) -> None:
    found = checked(planted, here)
    causes = {finding.cause: finding for finding in found.findings}
    assert planted.cause in causes, causes
    assert planted.says in "; ".join(causes[planted.cause].evidence)
    assert causes[planted.cause].where
    assert (found.verdict, found.exit_code) == ("sick", 1)
    assert set(causes) == {planted.cause}, "one fault is one finding"


@pytest.mark.parametrize("planted", PLANTED, ids=lambda each: f"{each.cause}-{'-'.join(each.files) or 'command'}")
def test_a_fault_stands_in_the_check_list_with_its_fix(planted: Planted, here: Path) -> None:
    lines = [line for line in checked(planted, here).lines if line.status in ("warn", "fail")]
    assert lines
    assert all(line.group in (*GROUPS, "Files") and line.code and line.fix for line in lines)


@pytest.mark.parametrize("card", [None, "H100"])
@pytest.mark.parametrize("name", HEALTHY)
def test_a_plan_that_works_is_left_in_peace(name: str, card: str | None, here: Path) -> None:
    (here / name).write_text(HEALTHY[name])
    found = inspect_files([name], gpu=card)
    assert found.findings == []
    assert found.exit_code == 0


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_that_works_is_left_in_peace(command: str, here: Path) -> None:
    assert inspect_files([command]).findings == []


def test_the_check_list_shows_what_was_looked_at_and_what_was_seen(here: Path) -> None:
    (here / "train.yaml").write_text(HEALTHY["llama_factory_lora.yaml"])
    found = inspect_files(["train.yaml"], gpu="A100")
    assert [line.group for line in found.lines if line.title != "model size"] == GROUPS
    seen = {line.group: line.seen for line in reversed(found.lines)}
    assert seen["Precision"] == "bf16 (train.yaml:35)"
    assert seen["Learning rate"] == "learning_rate 0.0001 (train.yaml:31), adamw for adapters"
    assert "warmup_ratio 0.1 (train.yaml:34)" in seen["Schedule"]
    assert "8 rows per update" in seen["Batch"]
    assert "of LLaMA-Factory" in seen["Flags"]
    assert seen["GPU"] == "A100 (Ampere)"


def test_what_the_files_do_not_say_is_skipped_and_not_passed(here: Path) -> None:
    (here / "little.yaml").write_text("lr: 0.001\nepochs: 3\n")
    status = {line.group: line.status for line in inspect_files(["little.yaml"]).lines}
    assert status["Learning rate"] == "pass"
    assert {group for group, each in status.items() if each == "skip"} == set(GROUPS) - {"Learning rate"}


def test_a_command_wins_over_files_and_a_later_file_over_an_earlier_one(here: Path) -> None:
    (here / "one.yaml").write_text("learning_rate: 0\nepochs: 1\n")
    (here / "two.yaml").write_text("learning_rate: 1e-4\n")
    assert inspect_files(["one.yaml", "two.yaml"]).findings == []
    assert [each.cause for each in inspect_files(["two.yaml", "one.yaml"]).findings] == ["lr-zero"]
    found = inspect_files(["one.yaml", "two.yaml", "python train.py --learning_rate 3e-4"])
    rate = next(line for line in found.lines if line.group == "Learning rate")
    assert rate.seen.startswith("learning_rate 0.0003 (command)")
    assert "over 0 (one.yaml:1)" in dict(found.banner)["overruled"]


def test_a_command_reads_the_script_beside_it(here: Path) -> None:
    (here / "train.py").write_text(ARGPARSE)
    found = inspect_files(["python train.py --fp16 --learn 1e-4"])  # argparse takes abbreviations
    assert found.findings == []
    assert "named by command" in dict(found.banner)["train.py"]
    assert next(line.seen for line in found.lines if line.group == "Flags") == "2 of train.py"


def test_a_program_that_takes_flags_from_elsewhere_is_not_held_to_its_text(here: Path) -> None:
    (here / "train.py").write_text(ARGPARSE.replace("parse_args()", "parse_known_args()[0]"))
    assert inspect_files(["python train.py --bf16 --my_own 3"]).findings == []


def test_two_faults_of_one_group_are_both_told(here: Path) -> None:
    (here / "a.yaml").write_text(BERT + "load_best_model_at_end: true\neval_strategy: epoch\nsave_strategy: steps\n"
                                 "metric_for_best_model: loss\ngreater_is_better: true\n")  # fmt: skip
    finding = inspect_files(["a.yaml"]).findings[0]
    assert len(finding.evidence) == 2


def test_a_training_loop_that_is_sound_is_left_in_peace(here: Path) -> None:
    (here / "loop.py").write_text(LOOP)
    found = inspect_files(["loop.py"])
    assert found.findings == []
    assert {line.group: line.status for line in found.lines}["Code"] == "pass"


def test_the_same_plan_on_a_newer_card_has_no_fault(here: Path) -> None:
    for planted in PLANTED:
        if planted.cause in ("bf16-unsupported", "card-lacks-feature"):
            assert checked(dataclasses.replace(planted, gpu="B200"), here).findings == []


def test_no_plan_of_a_run_that_went_well_is_warned_of(here: Path) -> None:
    """The settings of real runs that were healthy, or only looked bad."""
    looked = 0
    for which in ("first", "second", "third", "fourth", "fifth"):
        for case in (case for case in read_cases(which) if case.harmless):
            (here / case.name).mkdir()
            for path in case.write(here / case.name):
                if looks_like_config(path, Path(path).read_bytes()[:4096]):
                    looked += 1
                    assert inspect_files([str(path)]).findings == [], case.name
    assert looked > 20


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        ("learning_rate: -1e-4\n", "above 0"),
        ("learning_rate: 10\noptimizer: adamw\n", "well below 0.001"),
        ("warmup_steps: 900\nmax_steps: 900\n", "shorten the warmup"),
        ("gradient_accumulation_steps: 0\n", "1 or more"),
        ("load_best_model_at_end: true\neval_strategy: epoch\nsave_strategy: steps\n", "both"),
        ("metric_for_best_model: loss\ngreater_is_better: true\n", "greater_is_better=False"),
        ("load_best_model_at_end: true\neval_strategy: steps\nsave_strategy: steps\neval_steps: 50\nsave_steps: 70\n",
         "multiple of eval_steps"),
    ],
)  # fmt: skip
def test_the_fix_speaks_of_the_fault_that_was_found(text: str, fix: str, here: Path) -> None:
    plan = BERT.replace("learning_rate: 2e-5\n", "") if text.startswith("learning_rate") else BERT
    (here / "train.yaml").write_text(plan + text)
    (finding,) = inspect_files(["train.yaml"]).findings
    assert fix in finding.fix


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_a_reference_model_in_fp16_is_not_the_one_that_is_trained(precision: str, here: Path) -> None:
    (here / "dpo.py").write_text(
        "from trl import DPOConfig, DPOTrainer\n"
        'model = AutoModelForCausalLM.from_pretrained("gpt2")\n'
        'ref_model = AutoModelForCausalLM.from_pretrained(\n    "gpt2",\n    torch_dtype=torch.float16,\n)\n'
        f'args = DPOConfig(output_dir="o", learning_rate=5e-7, {precision}=True, per_device_train_batch_size=2)\n'
        "DPOTrainer(model=model, ref_model=ref_model, args=args, train_dataset=data).train()\n"
    )
    assert inspect_files(["dpo.py"]).findings == []


@pytest.mark.parametrize(("bits", "warned"), [("float16", True), ("bfloat16", False)])
def test_a_base_that_is_fp16_twice_under_adapters_is_a_warning(bits: str, warned: bool, here: Path) -> None:
    """fp16 weights by the device, mixed precision by the device, LoRA on top: gradients were NaN at every step."""
    (here / "sft.py").write_text(f"""\
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

device = "cuda" if torch.cuda.is_available() else "cpu"
load_kwargs = {{"torch_dtype": torch.{bits} if device == "cuda" else torch.float32}}
model = AutoModelForCausalLM.from_pretrained("HuggingFaceTB/SmolLM2-360M-Instruct", **load_kwargs).to(device)
model = get_peft_model(model, LoraConfig(r=8, target_modules="all-linear", task_type="CAUSAL_LM"))
args = TrainingArguments("out", fp16=torch.cuda.is_available(), learning_rate=2e-4)
Trainer(model=model, args=args, train_dataset=rows).train()
""")
    found = {finding.cause: finding.severity for finding in inspect_files(["sft.py"]).findings}
    assert found.get("double-fp16") == ("warning" if warned else None)


@pytest.mark.parametrize(("rates", "wrong"), [((0.22, 0.6, 0.04), False), ((0.5, 0.9, 0.7), True)])
def test_groups_with_rates_of_their_own_are_judged_together(rates: tuple[float, ...], wrong: bool, here: Path) -> None:
    groups = ", ".join(f"dict(params=part{place}, lr={rate})" for place, rate in enumerate(rates))
    (here / "train.py").write_text(
        "import torch\nfrom transformers import AutoModel\nmodel = AutoModel.from_pretrained('gpt2')\n"
        f"groups = [{groups}]\noptimizer = torch.optim.Adam(groups, betas=(0.8, 0.95))\n"
        "for x, y in loader:\n    optimizer.zero_grad()\n    loss = criterion(model(x), y)\n    loss.backward()\n"
        "    optimizer.step()\n"
    )
    assert ("lr-too-high" in {each.cause for each in inspect_files(["train.py"]).findings}) is wrong


@pytest.mark.parametrize(("kept", "wrong"), [("acc < best_acc", True), ("acc > best_acc", False)])
def test_a_best_checkpoint_that_is_picked_by_the_wrong_end_is_a_warning(kept: str, wrong: bool, here: Path) -> None:
    (here / "train.py").write_text(
        "import torch\nmodel = torch.nn.Linear(4, 1)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "best_acc = 0\nfor epoch in range(3):\n    for x, y in loader:\n        optimizer.zero_grad()\n"
        "        loss = ((model(x) - y) ** 2).mean()\n        loss.backward()\n        optimizer.step()\n"
        f"    acc = evaluate(model)\n    if {kept}:\n        best_acc = acc\n"
        "        torch.save(model.state_dict(), 'a.pt')\n"
    )
    found = {each.cause: each.severity for each in inspect_files(["train.py"]).findings}
    assert found == ({"flipped-sign": "warning"} if wrong else {})
