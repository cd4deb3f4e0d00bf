"""`stayfinite diagnose` as a user calls it: answers, exit codes, and files that mean harm."""

import json
import math
import os
import subprocess
import sys
import time
import zipfile

import pytest

from command_cost import command_cost
from stayfinite.cli import main
from stayfinite.diagnosis.telling import understand_told

HEALTHY = "".join(f"{{'loss': {3 - i / 20:.3f}, 'grad_norm': 1.2, 'learning_rate': 1e-4}}\n" for i in range(20))
SICK = "ValueError: Attempting to unscale FP16 gradients.\n"


def answer(capsys, *words):
    code = main(["diagnose", "--json", *map(str, words)])
    return code, json.loads(capsys.readouterr().out)


def test_a_healthy_run_ends_with_0_and_no_finding(tmp_path, capsys):
    log = tmp_path / "train.log"
    log.write_text(HEALTHY)
    code, found = answer(capsys, log)
    assert (code, found["verdict"], found["findings"]) == (0, "healthy", [])


def test_a_sick_run_ends_with_1_and_the_cause_first(tmp_path, capsys):
    log = tmp_path / "train.log"
    log.write_text(SICK)
    code, found = answer(capsys, log)
    first = found["findings"][0]
    assert (code, found["verdict"], first["cause"], first["where"]) == (1, "sick", "double-fp16", f"{log}:1")
    assert set(first) == {"code", "cause", "severity", "confidence", "where", "title", "evidence", "fix"}


def test_the_words_for_people_hold_cause_evidence_and_fix(tmp_path, capsys):
    log = tmp_path / "train.log"
    log.write_text(SICK)
    assert main(["diagnose", str(log)]) == 1
    shown = capsys.readouterr().out
    assert "SF103 double-fp16" in shown
    assert "fix" in shown
    assert "stayfinite explain SF103" in shown


def test_the_symptom_of_the_first_line_is_not_listed_again_as_a_cause(tmp_path, capsys):
    log = tmp_path / "train.log"
    log.write_text("step 1 loss 2.3\nstep 2 loss 2.2\nstep 3 loss nan\n")
    assert "nan-loss" in [each["cause"] for each in answer(capsys, log)[1]["findings"]]
    main(["diagnose", str(log)])
    said = capsys.readouterr().out
    assert "nan-loss" not in said
    assert "the loss is NaN or inf from step 3" in said
    assert "less likely: SF" in said


def test_a_log_from_a_pipe_is_read():
    command = [sys.executable, "-m", "stayfinite", "diagnose", "--json", "-"]
    done = subprocess.run(command, input=SICK, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert json.loads(done.stdout)["findings"][0]["cause"] == "double-fp16"


def test_a_config_alone_is_judged_as_a_risk(tmp_path, capsys):
    config = tmp_path / "train.yaml"
    config.write_text("model_name_or_path: google/mt5-base\nfp16: true\n")
    code, found = answer(capsys, config)
    assert code == 1
    assert found["findings"][0]["cause"] == "fp16-overflow-model-family"


def test_what_could_not_be_read_is_said_beside_what_could(tmp_path, capsys):
    log = tmp_path / "train.log"
    log.write_text(HEALTHY)
    code, found = answer(capsys, log, tmp_path / "missing.log")
    assert code == 0
    assert found["sources"][1]["said"] == "no such file"


@pytest.mark.parametrize("words", [[], ["missing.log"], ["."]])
def test_nothing_to_read_ends_with_2_and_says_why(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["diagnose", *words]) == 2
    assert "stayfinite diagnose: " in capsys.readouterr().err


def bomb(path):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", b"\0" * 50_000_000)


def evil(path):
    path.write_bytes(b"cposix\nsystem\n(S'touch executed'\ntR.")


HOSTILE = {
    "binary junk": lambda path: path.write_bytes(os.urandom(300_000)),
    "a long line": lambda path: path.write_bytes(b"loss " * 4_000_000),
    "half a JSON": lambda path: path.write_text('{"log_history": [{"loss": 2.0, "step": 1}, {"loss": na'),
    "mixed encodings": lambda path: path.write_bytes(
        "é loss: 2\n".encode("latin-1") + "日本 loss: 3\n".encode() + b"\xff\xfe\0"
    ),
    "a zip bomb": bomb,
    "a pickle that runs a command": evil,
    "nothing": lambda path: path.write_bytes(b""),
    "NUL bytes": lambda path: path.write_bytes(b"\0" * 100_000),
    "deep JSON": lambda path: path.write_text("[" * 100_000),
    "deep YAML": lambda path: path.write_text("a: " * 20_000),
}


@pytest.mark.parametrize(
    "name", ["train.log", "config.json", "config.yaml", "training_args.bin", "model.pt", "train.py"]
)
@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_file_is_answered_quickly_without_a_crash_and_nothing_runs(kind, name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    HOSTILE[kind](tmp_path / name)
    start = time.process_time()
    assert main(["diagnose", "--json", name]) in (0, 1, 2)
    assert time.process_time() - start < 20
    told = capsys.readouterr()
    assert told.out or told.err
    assert not (tmp_path / "executed").exists()


def test_links_to_themselves_and_directories_in_circles_end(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop.log").symlink_to("loop.log")
    assert main(["diagnose", "loop.log"]) == 2
    (tmp_path / "inside").symlink_to(tmp_path)
    (tmp_path / "train.log").write_text(HEALTHY)
    assert main(["diagnose", "."]) == 0


def test_neither_torch_nor_transformers_is_loaded_and_it_takes_about_a_second_at_most(tmp_path):
    log = tmp_path / "train.log"
    log.write_text(HEALTHY)
    loaded, starts = command_cost(["diagnose", log], modules=["torch", "transformers", "numpy"], times=3)
    assert loaded == []
    assert starts < 100


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_gigabyte_is_read_in_constant_memory(tmp_path):
    log = tmp_path / "train.log"
    block = HEALTHY.encode() * 10_000
    with log.open("wb") as file:
        while file.tell() < 1 << 30:
            file.write(block)
    # Not ru_maxrss, which a process inherits from the one that started it.
    code = f"""import pathlib
from stayfinite import diagnose
found = diagnose({str(log)!r})
(peak,) = [line for line in pathlib.Path('/proc/self/status').read_text().splitlines() if line.startswith('VmHWM')]
print(found.verdict, int(peak.split()[1]) // 1024)
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=1700).stdout
    assert int(out.split()[1]) < 120


def test_a_log_without_a_loss_does_not_claim_to_have_nothing_in_it(tmp_path, capsys):
    log = tmp_path / "train.log"
    log.write_text("".join(f"step {step}: {{'reward': {step / 10}, 'kl': 0.1}}\n" for step in range(1, 20)))
    assert main(["diagnose", str(log)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "38 values, no loss" in shown
    assert "0 measurements" not in shown


def test_what_is_told_changes_the_answer_and_what_is_left_to_decide_is_shown(tmp_path, capsys):
    log = tmp_path / "train.log"
    log.write_text("{'loss': 2.3, 'epoch': 0.1}\n{'loss': 2.2, 'epoch': 0.2}\n{'loss': nan, 'epoch': 0.3}\n")
    assert main(["diagnose", str(log)]) == 1
    words = " ".join(capsys.readouterr().out.split())
    _, found = answer(capsys, log)
    assert f"Cause not certain. Next: {found['differential']['try']}" in words
    assert f"--tell {found['differential']['key']}=fine" in words
    assert answer(capsys, log, "--tell", "rate=fine")[1]["findings"][0]["cause"] == "lr-too-high"


def test_a_question_needs_a_terminal(tmp_path, capsys):
    log = tmp_path / "train.log"
    log.write_text("{'loss': nan}\n")
    assert main(["diagnose", str(log), "--ask"]) == 2
    assert "--tell precision=fp16" in capsys.readouterr().err


def test_a_person_is_asked_for_the_missing_fact_and_the_answer_counts(tmp_path):
    pty = pytest.importorskip("pty", reason="no terminals here")
    log = tmp_path / "train.log"
    log.write_text("{'loss': 2.3, 'epoch': 0.1}\n{'loss': 2.2, 'epoch': 0.2}\n{'loss': nan, 'epoch': 0.3}\n")
    mine, theirs = pty.openpty()
    command = [sys.executable, "-m", "stayfinite", "diagnose", "--ask", "--json", str(log)]
    os.write(mine, b"asdf\nfp16\n" + b"\n" * 6)  # a slip is asked for again
    ran = subprocess.run(command, stdin=theirs, capture_output=True, text=True, timeout=60, check=False)
    os.close(mine)
    os.close(theirs)
    assert "Which precision" in ran.stderr
    found = json.loads(ran.stdout)["findings"][0]
    assert any("--tell" in line and "fp16" in line for line in found["evidence"])


def test_a_pipe_gets_whole_lines_without_blanks_at_their_ends(tmp_path):
    log = tmp_path / "train.log"
    log.write_text("".join(f"step {step} loss {math.nan if step > 50 else 2.0} grad_norm 1.0\n" for step in range(80)))
    command = [sys.executable, "-m", "stayfinite", "diagnose", str(log)]
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    piped = subprocess.run(command, capture_output=True, text=True, env=environment, check=False).stdout.splitlines()
    assert max(map(len, piped)) > 100  # a fix is one line
    assert [line for line in piped if line != line.rstrip()] == []
    for words, variables in (([], {"COLUMNS": "60"}), (["--width", "60"], {})):
        narrow = subprocess.run(
            command + words, capture_output=True, text=True, env=environment | variables, check=False
        )
        assert max(map(len, narrow.stdout.splitlines())) <= 60
    colored = subprocess.run(
        [*command, "--color=always"], capture_output=True, text=True, env=environment, check=False
    ).stdout
    assert "\x1b[" in colored
    assert max(map(len, colored.splitlines())) > 100


def test_overfitting_is_said_of_a_healthy_run_as_on_the_page(tmp_path, capsys):
    log = tmp_path / "train.log"
    rows = (
        f"Epoch {n}/50 train_loss: {1.5 * 0.9**n:.4f} val_loss: {1.2 * 0.9**n + 0.02 * n:.4f}\n" for n in range(1, 51)
    )
    log.write_text("".join(rows))
    assert main(["diagnose", str(log)]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("healthy")
    assert "Overfitting since epoch 17" in shown


@pytest.mark.parametrize(
    ("told", "said"),
    [("precison=fp16", "did you mean precision?"), ("foo=bad", "no such experiment"), ("padding=same", "")],
)
def test_a_slip_in_what_is_told_is_refused(tmp_path, capsys, told, said):
    log = tmp_path / "train.log"
    log.write_text("step 1 loss 2.0\nstep 2 loss 1.9\n")
    assert main(["diagnose", str(log), "--tell", told]) == (2 if said else 0)
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("told", "known"),
    [
        ("precision=fp17", "fp16, bf16 or fp32"),
        ("attn_implementation=egar", "eager, sdpa or flash_attention_2"),
        ("learning_rate=high", "a number"),
        ("max_grad_norm=one", "a number"),
        ("bf16=ture", "true or false (of an experiment: fine or bad)"),
        ("fp16=perhaps", "true or false"),
        ("labels=maybe", "fine or bad"),
        ("symptom=blue", "nan, still"),
        ("gpu=V10", "V100"),
    ],
)
def test_a_value_that_nobody_knows_is_refused_with_those_that_are_known(tmp_path, capsys, told, known):
    log = tmp_path / "train.log"
    log.write_text("step 1 loss 2.0\nstep 2 loss 1.9\n")
    assert main(["diagnose", str(log), "--tell", told]) == 2
    assert known in capsys.readouterr().err


def test_every_usual_spelling_of_a_known_value_is_taken():
    spellings = ["fp16", "bf16", "fp32", "16", "32", "16-mixed", "bf16-true", "torch.float16", "bfloat16", "no", "tf32"]
    told = [f"precision={each}" for each in spellings]
    told += [f"attn_implementation={each}" for each in ("eager", "sdpa", "flash_attention_3", "kernels-community/fa")]
    told += ["learning_rate=2e-5", "max_grad_norm=0", "max_grad_norm=none", "fp16=yes", "bf16=1", "fp16=auto", "seed=7"]
    told += ["optimizer=adamw_torch", "gpu=RTX PRO 6000", "gpu=v100", "gpu=4", "gpu=M4", "gpu=Gaudi2"]
    told += ["model=mine", "padding=left"]
    assert len(understand_told(told).settings) == len(told)


@pytest.mark.parametrize("text", ["", " \n\n"])
def test_an_empty_log_is_no_log_and_is_said_to_be_empty(tmp_path, monkeypatch, capsys, text):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.log").write_text(text)
    assert main(["diagnose", "empty.log"]) == 2
    assert "stayfinite diagnose: empty.log is empty" in capsys.readouterr().err


def test_an_empty_file_beside_a_log_does_not_count(tmp_path, capsys):
    log, empty = tmp_path / "train.log", tmp_path / "other.log"
    log.write_text(HEALTHY)
    empty.write_text("")
    code, found = answer(capsys, log, empty)
    assert (code, found["sources"][1]["read_as"], found["sources"][1]["said"]) == (0, "", "empty")


BY_HAND = 'Traceback (most recent call last):\n  File "t.py", line 3, in <module>\nKeyboardInterrupt\n'


@pytest.mark.parametrize("losses", [2, 30])
def test_a_training_that_somebody_stopped_did_not_crash(tmp_path, capsys, losses):
    log = tmp_path / "train.log"
    log.write_text("".join(f"step {at} loss {3 - at / 50:.3f}\n" for at in range(losses)) + BY_HAND)
    assert main(["diagnose", str(log)]) == 0
    said = capsys.readouterr().out
    assert said.startswith("healthy")
    assert "Stopped by hand (Ctrl+C)." in said


def test_an_error_in_the_same_place_is_a_crash(tmp_path, capsys):
    log = tmp_path / "train.log"
    log.write_text("step 1 loss 2.3\nstep 2 loss 2.2\n" + BY_HAND.replace("KeyboardInterrupt", "ValueError: bad"))
    assert main(["diagnose", str(log)]) == 1
    said = capsys.readouterr().out
    assert "the run crashed" in said
    assert "Stopped by hand" not in said


def test_a_stop_by_hand_does_not_hide_a_loss_that_is_not_finite(tmp_path, capsys):
    log = tmp_path / "train.log"
    log.write_text("step 1 loss 2.3\nstep 2 loss nan\nstep 3 loss nan\n" + BY_HAND)
    assert main(["diagnose", str(log)]) == 1
    assert "the loss is NaN or inf from step 2" in capsys.readouterr().out


def test_ranks_that_wait_for_each_other_to_the_end_are_a_run_that_hung(tmp_path, capsys):
    log = tmp_path / "train.log"
    timeout = "[rank3]:[E ProcessGroupNCCL.cpp:616] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL\n"
    log.write_text(f"step 1 loss 2.3\nstep 2 loss 2.2\n{timeout}")
    code, found = answer(capsys, log)
    assert (code, found["trouble"], found["findings"][0]["cause"]) == (1, ["the run hung"], "rank-desync")


def test_a_timeout_that_a_run_outlived_is_no_end(tmp_path, capsys):
    log = tmp_path / "train.log"
    log.write_text("step 1 loss 2.3\nWatchdog caught collective operation timeout\n" + HEALTHY)
    assert "the run hung" not in answer(capsys, log)[1]["trouble"]


def test_a_fault_without_a_bad_number_is_told_with_its_place_alone(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.log").write_text(HEALTHY)
    (tmp_path / "model.safetensors").write_bytes(b"")
    (tmp_path / "train.yaml").write_text("model_name_or_path: google/mt5-base\nfp16: true\n")
    main(["diagnose", "train.yaml"])
    assert capsys.readouterr().out.startswith("sick  known fault at train.yaml:1\n")
    main(["diagnose", "train.log", "model.safetensors"])
    assert capsys.readouterr().out.startswith("sick  known fault at model.safetensors\n")


def test_symptoms_are_joined_as_the_sentences_they_are(tmp_path, capsys):
    log = tmp_path / "train.log"
    log.write_text(HEALTHY + "{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 1e-4}\n" * 3)
    main(["diagnose", str(log)])
    assert capsys.readouterr().out.startswith("sick  the gradient norm is NaN or inf; the loss is 0.\n")


def test_the_rest_of_a_wrapped_line_is_indented_by_two_more(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "60")
    (tmp_path / "train.log").write_text(HEALTHY + "{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 1e-4}\n" * 3)
    (tmp_path / "train.yaml").write_text("model_name_or_path: google/mt5-base\nfp16: true\n")
    main(["diagnose", "train.log", "train.yaml"])
    lines = capsys.readouterr().out.splitlines()
    at = next(place for place, line in enumerate(lines) if line.startswith("  train.yaml:1: T5 models overflow"))
    assert lines[at + 1 : at + 3] == [
        "    (model_name_or_path: google/mt5-base)",
        "  train.yaml:2: fp16 is on (fp16: True)",
    ]
    fix = next(place for place, line in enumerate(lines) if line.startswith("  fix  "))
    assert lines[fix + 1].startswith("    ")
    assert max(map(len, lines)) <= 60
