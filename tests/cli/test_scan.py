"""``stayfinite scan`` as a person calls it: words, JSON, exit codes."""

import json
import subprocess
import sys

import pytest
import torch

from planted_checkpoints import NAN, save_trainer_checkpoint, weights
from stayfinite.cli import main


@pytest.fixture
def sick(tmp_path):
    save_trainer_checkpoint(tmp_path, 500, weights())
    bad = weights()
    bad["embed.weight"][2, 3] = NAN
    save_trainer_checkpoint(tmp_path, 1000, bad)
    return tmp_path


def test_healthy_checkpoints_end_with_0(tmp_path, capsys):
    save_trainer_checkpoint(tmp_path, 500, weights())
    assert main(["scan", str(tmp_path)]) == 0
    assert "The checkpoint is good: no NaN or inf." in capsys.readouterr().out


def test_poison_ends_with_1_and_the_last_line_says_where_to_go_on(sick, capsys):
    assert main(["scan", str(sick)]) == 1
    printed = capsys.readouterr().out
    last = printed.strip().splitlines()[-1]
    assert last.startswith("First bad between step 500 and step 1000. Newest good checkpoint: ")
    assert last.endswith("checkpoint-500 (step 500).")
    assert "embed.weight (F32): 1 NaN of 2,048, first at [2, 3], in model.safetensors" in printed


def test_the_json_is_the_contract_and_nothing_else_is_printed(sick, capsys):
    assert main(["scan", str(sick), "--json"]) == 1
    record = json.loads(capsys.readouterr().out)
    assert list(record) == ["schema", "verdict", "findings", "newest_good", "poison_entered", "checkpoints"]
    assert record["verdict"] == "sick"
    assert list(record["findings"][0]) == [
        "code", "cause", "severity", "confidence", "where", "title", "evidence", "fix",
    ]  # fmt: skip
    assert record["newest_good"]["step"] == 500
    assert (record["poison_entered"]["after_step"], record["poison_entered"]["by_step"]) == (500, 1000)
    assert [each["state"] for each in record["checkpoints"]] == ["good", "poisoned"]


def test_json_holds_no_nan_even_where_the_checkpoint_does(tmp_path, capsys):
    torch.save({"loss": NAN, "w": torch.full((300,), NAN)}, tmp_path / "step_1.pt")
    assert main(["scan", str(tmp_path), "--json"]) == 1
    json.loads(capsys.readouterr().out, parse_constant=pytest.fail)


def test_what_is_not_there_or_no_checkpoint_ends_with_2(tmp_path, capsys):
    assert main(["scan", str(tmp_path / "nowhere")]) == 2
    assert f"no such file: {tmp_path / 'nowhere'}\n  fix: check the path" in capsys.readouterr().err
    assert main(["scan", str(tmp_path)]) == 2
    assert "No checkpoint found" in capsys.readouterr().out
    assert main(["scan"]) == 2
    (tmp_path / "train.log").write_text("step 1 loss 2.0")
    assert main(["scan", str(tmp_path / "train.log")]) == 2
    assert "is not a training checkpoint" in capsys.readouterr().out


def test_a_quick_look_loads_no_torch_and_leaves_numbers_alone(sick):
    code = (
        "import sys; from stayfinite.cli import main; code = main(sys.argv[1:]);"
        "print(code, 'torch' in sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "scan", "--quick", sick], capture_output=True, text=True, check=True
    )
    assert done.stderr.split() == ["0", "False"]
    assert "not checked" in done.stdout


def test_names_with_brackets_are_printed_as_they_are(tmp_path, capsys):
    torch.save({"[red]w[/red]": torch.full((3,), NAN)}, tmp_path / "step_1.pt")
    main(["scan", str(tmp_path)])
    assert "[red]w[/red] (F32): 3 NaN of 3" in capsys.readouterr().out


def test_many_checkpoints_make_a_short_table(tmp_path, capsys):
    for step in range(40):
        torch.save({"w": torch.ones(2)}, tmp_path / f"step_{step}.pt")
    assert main(["scan", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "… 16 more: 16 good" in printed
    assert len(printed.splitlines()) < 40


def test_errors_that_are_left_out_are_counted_before_any_warning(tmp_path, capsys):
    for number in range(8):
        (tmp_path / f"cut{number}.safetensors").write_bytes(b"")
    large = weights() | {"head.weight": torch.full((4, 4), 1e30)}
    torch.save(large, tmp_path / "large.pt")
    assert main(["scan", str(tmp_path)]) == 1
    printed = capsys.readouterr().out
    assert printed.count("error SF703") == 6
    assert printed.index("2 more errors of SF703: --json lists all") < printed.index("warning SF702")
    assert "large.pt has extreme weights: values in 1 tensor overflow in fp16" in printed
