"""The public face: what it promises is there, and importing it is light."""

import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

import stayfinite
from stayfinite.errors import MissingExtra

ROOT = Path(__file__).parent.parent


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def test_every_promised_name_can_be_had():
    assert all(getattr(stayfinite, name) is not None for name in stayfinite.__all__)
    assert sorted(stayfinite.__all__) == sorted(set(dir(stayfinite)))


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Gard'"):
        stayfinite.Gard  # noqa: B018


def test_importing_the_face_and_the_policy_loads_no_torch():
    assert run("import sys, stayfinite; stayfinite.Policy.strict(); print('torch' in sys.modules)") == "False"


def test_importing_everything_changes_nothing_in_the_process():
    code = """
import logging, os, random, signal, sys, warnings
import torch
before = (dict(os.environ), sys.excepthook, signal.getsignal(signal.SIGTERM), logging.root.handlers[:],
          warnings.filters[:], random.getstate(), torch.get_num_threads(), torch.get_rng_state().tolist())
import stayfinite, stayfinite.guard.guard, stayfinite.cli
after = (dict(os.environ), sys.excepthook, signal.getsignal(signal.SIGTERM), logging.root.handlers[:],
         warnings.filters[:], random.getstate(), torch.get_num_threads(), torch.get_rng_state().tolist())
print(before == after)
"""
    assert run(code) == "True"


def test_the_version_is_the_same_everywhere():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert declared == stayfinite.__version__ == metadata.version("stayfinite")


def test_the_bare_package_asks_for_torch_safetensors_yaml_rich_and_the_command_line_only():
    needs = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert sorted(need.split(">")[0] for need in needs) == ["pyyaml", "rich", "safetensors", "torch", "tyro"]


def test_a_missing_extra_prints_the_exact_pip_line():
    error = MissingExtra.of("transformers", extra="hf", what_for="the comparison")
    assert "pip install 'stayfinite[hf]'" in str(error)
    assert isinstance(error, ImportError)
