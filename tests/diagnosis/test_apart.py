"""Several runs in one directory are judged apart; the logs of one run are not."""

from pathlib import Path

import pytest

import stayfinite
from stayfinite.cli import main
from stayfinite.diagnosis.apart import separate_runs
from stayfinite.diagnosis.reading import read_paths
from stayfinite.errors import UsageError


def healthy(count=40, *, first=0, rate="3.00e-04", more=0.0):
    steps = range(first, first + count)
    return "".join(f"step {at * 50} | loss {3 - at / 40 + more:.4f} | lr {rate} | grad_norm 0.9\n" for at in steps)


def diverging(count=40):
    losses = [2.5 - at / 100 if at < 20 else 2.5 * 1.7 ** (at - 19) for at in range(count)]
    return "".join(f"step {at * 50} | loss {loss:.4f} | lr 0.01 | grad_norm 5\n" for at, loss in enumerate(losses))


def rows(count=40):
    return "step,loss\n" + "".join(f"{at * 50},{3 - at / 40:.5f}\n" for at in range(count))


def write(folder, **texts):
    for name, text in texts.items():
        stem, _, ending = name.rpartition("_")
        (folder / f"{stem}.{ending}").write_text(text)
    return folder


def runs_in(folder):
    return separate_runs(read_paths([folder]).runs)


def test_two_runs_in_a_directory_are_told_in_a_line_each(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, a_log=healthy(), b_log=diverging(), b_yaml="fp16: true\n", other_yaml="fp16: true\n")
    (tmp_path / "c.log").write_bytes(bytes(range(1, 7)) * 500)
    assert main(["diagnose", "."]) == 1
    said = capsys.readouterr().out.replace("\n", " ")
    assert "healthy  a.log" in said
    assert "sick     b.log + b.yaml  the loss explodes; the loss diverges; SF201 lr-too-high" in said
    assert "other.yaml: name it with the log of its run" in said
    assert "c.log: not text" in said


def test_healthy_runs_side_by_side_end_with_0_whatever_else_cannot_be_read(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, a_log=healthy(), b_log=healthy(rate="1.00e-03", more=2))
    (tmp_path / "c.log").write_bytes(bytes(range(1, 7)) * 500)
    assert main(["diagnose", "."]) == 0
    assert capsys.readouterr().out.count("healthy  ") == 2


def test_a_program_gets_the_list_of_runs_in_place_of_a_mixture(tmp_path):
    write(tmp_path, a_log=healthy(), b_log=diverging())
    assert main(["diagnose", "--json", str(tmp_path)]) == 2
    with pytest.raises(UsageError, match=r"holds 2 runs: a\.log, b\.log"):
        stayfinite.diagnose(tmp_path)


def test_logs_that_are_named_one_by_one_are_one_run(tmp_path):
    write(tmp_path, a_log=healthy(), b_log=diverging())
    assert stayfinite.diagnose(tmp_path / "a.log", tmp_path / "b.log").verdict == "sick"


@pytest.mark.parametrize(
    "texts",
    [
        {"train_log": healthy(), "config_yaml": "fp16: true\n"},
        {"rank0_log": healthy(), "rank1_log": healthy(more=1)},
        {"log_0_txt": healthy(), "log_1_txt": healthy(more=1)},
        {"train_log": healthy(), "eval_log": healthy(more=1)},
        {"slurm-12_out": healthy(), "slurm-12_err": healthy(more=1)},
        {"train_log": healthy(), "metrics_csv": rows()},
        {"train_log": healthy(), "resumed_log": healthy(first=40)},
        {"train_log": healthy(), "console_log": healthy(more=0.2)},
        {"train_log": healthy(), "errors_log": "CUDA error: device-side assert triggered\n"},
    ],
)
def test_logs_of_one_run_stay_together(tmp_path, texts):
    assert runs_in(write(tmp_path, **texts)) == []


def test_a_directory_of_runs_says_which_logs_belong_together(tmp_path):
    write(tmp_path, a_log=healthy(), a_csv=rows(), b_log=diverging())
    named = [sorted(Path(log).name for log in run) for run in runs_in(tmp_path)]
    assert sorted(named) == [["a.csv", "a.log"], ["b.log"]]
