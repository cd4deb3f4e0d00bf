"""training_args.bin and its kin: settings come out, nothing is imported or called."""

import argparse
import collections
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import textwrap
import tracemalloc

import pytest

from readers.pickles.would_call import WouldCall
from stayfinite.readers.configs import read_config

WRITE = """
import sys
import torch
from transformers import TrainingArguments
arguments = TrainingArguments(
    output_dir="out", fp16=False, learning_rate=3e-4, lr_scheduler_type="cosine", report_to=[], max_grad_norm=0.0,
    warmup_steps=7, gradient_checkpointing_kwargs={"use_reentrant": False},
)
torch.save(arguments, sys.argv[1] + "/training_args.bin")
torch.save(arguments, sys.argv[1] + "/training_args_legacy.bin", _use_new_zipfile_serialization=False)
"""
WRITTEN = pathlib.Path(__file__).with_name("pickled")
"""What the lines above left behind, with transformers 5.22."""

EXPECTED = {
    "output_dir": "out",
    "fp16": False,
    "learning_rate": 3e-4,
    "lr_scheduler_type": "cosine",
    "optim": "adamw_torch_fused",
    "max_grad_norm": 0.0,
    "warmup_steps": 7,
    "gradient_checkpointing_kwargs.use_reentrant": False,
    "adam_epsilon": 1e-8,
    "report_to": [],
    "logging_nan_inf_filter": True,
}
NAMES = ["training_args.bin", "training_args_legacy.bin"]


def told(path):
    found = {setting.name.removeprefix("TrainingArguments."): setting.value for setting in read_config(path)}
    return {key: found.get(key, "(missing)") for key in EXPECTED}


@pytest.mark.parametrize("name", NAMES)
def test_the_training_arguments_of_transformers_are_read(name):
    assert told(WRITTEN / name) == EXPECTED
    assert read_config(WRITTEN / name).find("fp16").where == str(WRITTEN / name)


@pytest.mark.slow
def test_those_of_the_installed_transformers_as_well(tmp_path):
    pytest.importorskip("transformers")
    subprocess.run([sys.executable, "-W", "ignore", "-c", WRITE, str(tmp_path)], check=True, cwd=tmp_path)
    assert [told(tmp_path / name) for name in NAMES] == [EXPECTED, EXPECTED]


def test_a_member_of_an_enum_that_is_written_by_its_name_is_read(tmp_path):
    """As Python 3.11.2 writes it, Debian 12's: no value is in the file."""
    for name, value in (("SIGINT", "sigint"), ("REDUCE_ON_PLATEAU", "reduce_lr_on_plateau")):
        settings = {"learning_rate": 3e-4, "lr_scheduler_type": WouldCall(getattr, signal.Signals, name)}
        (tmp_path / "hparams.pkl").write_bytes(pickle.dumps(settings))
        assert read_config(tmp_path / "hparams.pkl").value("lr_scheduler_type") == value


def test_reading_loads_neither_torch_nor_transformers():
    code = """
    import sys
    from stayfinite.readers.configs import read_config
    assert read_config(sys.argv[1]).value("learning_rate") == 3e-4
    assert not {"torch", "transformers", "numpy", "yaml"} & set(sys.modules)
    """
    subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(WRITTEN / "training_args.bin")],
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_malicious_pickle_does_nothing(tmp_path, protocol):
    mark = tmp_path / "pwned"
    harm = [
        WouldCall(os.system, f"touch {mark}"),
        WouldCall(eval, f"open({str(mark)!r}, 'w')"),
        WouldCall(exec, f"open({str(mark)!r}, 'w')"),
        WouldCall(pathlib.Path(mark).touch),
        WouldCall(subprocess.check_call, ["touch", str(mark)]),
    ]
    for number, payload in enumerate([*harm, {"args": harm}, {"lr": 0.1, "harm": harm}]):
        path = tmp_path / f"training_args{number}.bin"
        path.write_bytes(pickle.dumps(payload, protocol=protocol))
        read_config(path)
        assert not mark.exists()
    assert read_config(path).value("lr") == 0.1


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_namespaces_dicts_and_paths_come_out_as_plain_values(tmp_path, protocol):
    path = tmp_path / "args.pkl"
    space = argparse.Namespace(
        lr=[0.1, 0.2], fp16=True, out=pathlib.PurePosixPath("a/b"), more=collections.OrderedDict(eps=1e-8), kinds={"a"}
    )
    path.write_bytes(pickle.dumps(space, protocol=protocol))
    settings = read_config(path)
    names = ["lr", "fp16", "more.eps", "Namespace.kinds"]
    assert [settings.value(name) for name in names] == [[0.1, 0.2], True, 1e-8, ["a"]]
    assert "a/b" in str(settings.value("out"))
    path.write_bytes(pickle.dumps({"hyper_parameters": {"lr": 0.3}, "state_dict": {"w": [1.0] * 9}}, protocol=protocol))
    assert [(each.name, each.value) for each in read_config(path)] == [("hyper_parameters.lr", 0.3)]


def test_an_object_that_holds_itself_ends(tmp_path):
    loop = {"lr": 0.1}
    loop["self"] = loop
    many = ["x"]
    for _ in range(40):
        many = [many, many]
    loop["many"] = many
    path = tmp_path / "loop.pkl"
    path.write_bytes(pickle.dumps({"args": loop}))
    settings = read_config(path)
    assert settings.value("args.lr") == 0.1
    assert len(settings) < 6000


def test_a_large_dict_that_is_shared_a_thousand_times_is_not_copied_a_thousand_times(tmp_path):
    large = {str(number): number for number in range(20_000)}
    path = tmp_path / "many.pkl"
    path.write_bytes(pickle.dumps({"args": {"lr": 0.1, "many": [large] * 1000}}))
    tracemalloc.start()
    settings = read_config(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert settings.value("args.lr") == 0.1
    assert peak < 100_000_000


def test_numbers_too_long_to_be_printed_are_described(tmp_path):
    path = tmp_path / "long.pkl"
    path.write_bytes(pickle.dumps({"args": {"lr": 0.1, "seed": 10**5000, 10**5000: 1}}))
    settings = read_config(path)
    assert [settings.value(name) for name in ("lr", "seed", "args.int")] == [0.1, "a number of 16610 bits", 1]


def test_nested_tuples_as_a_key_do_not_take_for_ever(tmp_path):
    path = tmp_path / "laughs.pkl"
    path.write_bytes(b"\x80\x02}(K\x01\x85" + b"2\x86" * 60 + b"K\x01X\x02\x00\x00\x00lrK\x02u.")
    assert read_config(path).value("lr") == 2


def test_weights_are_no_settings(tmp_path):
    path = tmp_path / "model.bin"
    path.write_bytes(pickle.dumps({"layer.weight": [1.0, 2.0], "layer.bias": [0.0]}))
    settings = read_config(path)
    assert len(settings) == 0
    assert "without settings" in settings.notes[0][1]
