"""`stayfinite diff`: two plans of any kind, what matters for stability first."""

from pathlib import Path

import pytest

from stayfinite.errors import UsageError
from stayfinite.inspection.files.comparison import Comparison, compare

PAIR = Path(__file__).parent / "pair"


def founding_pair(folder: Path) -> Comparison:
    (folder / "train.py").write_text((PAIR / "train_script.txt").read_text())
    (folder / "notebook.ipynb").write_text((PAIR / "train_notebook.json").read_text())
    return compare("train.py", "notebook.ipynb")


def values(comparison: Comparison) -> dict[str, tuple[object, object]]:
    return {each.name: (each.left and each.left.value, each.right and each.right.value) for each in comparison.training}


def test_a_script_and_a_notebook_are_told_apart_with_fp16_first(here: Path) -> None:
    found = founding_pair(here)
    assert found.training[0].name == "fp16"
    assert values(found) == {
        "fp16": ("False", "True"),
        "learning_rate": (1e-4, 3e-4),
        "warmup_ratio": (0.1, 0.05),
        "input length": (256, 512),
        "generation_max_length": (256, 512),
    }
    assert "65,504" in found.training[0].means
    assert "3 times" in found.training[1].means


def test_every_value_has_its_place(here: Path) -> None:
    for each in founding_pair(here).training:
        assert each.left is not None
        assert each.right is not None
        lines = Path("train.py").read_text().splitlines(), Path("notebook.ipynb").read_text().splitlines()
        for side, text in zip((each.left, each.right), lines, strict=True):
            line = text[int(side.where.rpartition(":")[2]) - 1]
            shown = "1e-4" if side.value == 1e-4 else "3e-4" if side.value == 3e-4 else str(side.value)
            assert shown in line or "MAX_" in line


def test_the_same_file_under_another_name_is_the_same(here: Path) -> None:
    text = (PAIR / "train_script.txt").read_text()
    (here / "a.py").write_text(text)
    (here / "b.py").write_text("# a remark\n" + text)
    found = compare("a.py", "b.py")
    assert found.same
    assert found.equal > 15


def test_frameworks_that_call_a_thing_differently_are_matched(here: Path) -> None:
    (here / "lightning.yaml").write_text(
        "trainer:\n  precision: bf16-mixed\n  gradient_clip_val: 1.0\n  max_epochs: 3\n  accumulate_grad_batches: 4\n"
        "optimizer:\n  lr: 1e-4\ndata:\n  batch_size: 8\n"
    )
    (here / "hf.yaml").write_text(
        "bf16: true\nmax_grad_norm: 1.0\nnum_train_epochs: 3\ngradient_accumulation_steps: 2\nlearning_rate: 1.0e-4\n"
        "per_device_train_batch_size: 16\n"
    )
    found = compare("lightning.yaml", "hf.yaml")
    assert found.same
    assert found.equal == 5


@pytest.mark.parametrize(
    ("one", "other", "first"),
    [
        ("lr: 1e-4\nfp16: true\nseed: 1\n", "lr: 1e-3\nbf16: true\nseed: 2\n", ["precision", "lr", "seed"]),
        ("seed: 1\nclip_norm: 0\nwarmup: 0\n", "seed: 2\nclip_norm: 1\nwarmup: 9\n", ["warmup", "clip_norm", "seed"]),
        ("batch_size: 8\noptim: sgd\n", "batch_size: 4\noptim: adamw\n", ["batch (rows per update)", "optim"]),
    ],
)
def test_what_is_weightier_for_stability_comes_first(one: str, other: str, first: list[str], here: Path) -> None:
    (here / "one.yaml").write_text(one)
    (here / "other.yaml").write_text(other)
    assert [each.name for each in compare("one.yaml", "other.yaml").training] == first


def test_an_fp16_that_only_one_side_speaks_of_is_a_difference(here: Path) -> None:
    (here / "one.yaml").write_text("learning_rate: 1e-4\nfp16: true\n")
    (here / "other.yaml").write_text("learning_rate: 1e-4\n")
    (found,) = compare("one.yaml", "other.yaml").training
    assert (found.left and found.left.value, found.right and found.right.value) == ("fp16", "not set")


def test_settings_of_one_side_and_of_another_kind_stand_apart(here: Path) -> None:
    (here / "one.yaml").write_text("lr: 1e-4\noutput_dir: a\nweight_decay: 0.1\nnote: x\n")
    (here / "other.yaml").write_text("lr: 1e-4\noutput_dir: b\n")
    found = compare("one.yaml", "other.yaml")
    assert [each.name for each in found.other] == ["output_dir"]
    assert [each.name for each in found.one_sided] == ["weight_decay", "note"]
    assert (found.training, found.equal, found.same) == ((), 1, False)


def test_a_command_can_be_held_against_a_file(here: Path) -> None:
    (here / "train.yaml").write_text("learning_rate: 1e-4\nfp16: false\n")
    found = compare("python train.py --lr 1e-4 --fp16", "train.yaml")
    assert [each.name for each in found.training] == ["fp16"]


def test_a_side_without_any_setting_is_an_error(here: Path) -> None:
    (here / "a.yaml").write_text("lr: 1\n")
    (here / "b.txt").write_text("\n\n \n")
    with pytest.raises(UsageError, match="is empty"):
        compare("a.yaml", "b.txt")


@pytest.mark.parametrize(
    ("one", "other", "name"),
    [
        (
            "model:\n  lr: 3e-4\noptimizer:\n  lr: 3e-4\n",
            "model:\n  lr: 3e-4\noptimizer:\n  lr: 3e-1\n",
            "optimizer_lr",
        ),
        ("bf16:\n  enabled: true\n", "bf16:\n  enabled: true\nfp16:\n  enabled: true\n", "precision"),
        ("bf16: auto\n", "bf16: true\n", "bf16"),
    ],
)
def test_a_second_value_of_the_same_matter_is_not_passed_over(one: str, other: str, name: str, here: Path) -> None:
    (here / "one.yaml").write_text(f"epochs: 3\n{one}")
    (here / "other.yaml").write_text(f"epochs: 3\n{other}")
    for pair in (("one.yaml", "other.yaml"), ("other.yaml", "one.yaml")):
        found = compare(*pair)
        (difference,) = (*found.training, *found.other, *found.one_sided)
        assert difference.name == name
        assert difference.means


def test_the_second_of_two_calls_may_be_the_one_that_differs(here: Path) -> None:
    text = "x = tok(a, max_length=512)\ny = tok(b, max_length={})\nlr = 1e-4\n"
    (here / "one.py").write_text(text.format(128))
    (here / "other.py").write_text(text.format(64))
    (found,) = compare("one.py", "other.py").training
    assert (found.left and found.left.value, found.right and found.right.value) == (128, 64)
    assert compare("one.py", "one.py").same


def test_formats_that_exclude_each_other_and_clipping_that_is_gone_come_first(here: Path) -> None:
    (here / "one.yaml").write_text("bf16: true\nfp16: true\nmax_grad_norm: 1.0\nseed: 1\noutput_dir: a\n")
    (here / "other.json").write_text('{"fp16": {"enabled": true}, "bf16": {"enabled": true}, "seed": 2}')
    found = compare("one.yaml", "other.json")
    assert [each.name for each in found.training] == ["precision", "max_grad_norm", "seed"]
    assert "only one of fp16 and bf16" in found.training[0].means
    assert found.training[1].right is not None
    assert found.training[1].right.value == "not set"
    assert compare("one.yaml", "one.yaml").same


def test_two_commands_have_headings_of_their_own(here: Path) -> None:
    found = compare("python train.py --lr 1e-4", "python train.py --lr 2e-4")
    assert (found.left, found.right) == ("command 1", "command 2")


def test_a_value_that_a_command_overrules_is_no_difference(here: Path) -> None:
    (here / "base.yaml").write_text("learning_rate: 1e-3\nseed: 1\n")
    (here / "flat.yaml").write_text("learning_rate: 1e-4\nseed: 1\n")
    assert not compare("python train.py --config base.yaml --learning_rate 1e-4", "flat.yaml").training


def test_a_dtype_that_is_left_to_the_library_is_no_fp32(here: Path) -> None:
    (here / "one.py").write_text("dtype = None\nlr = 1e-4\nfp16 = not supported()\n")
    (here / "other.py").write_text("dtype = None\nlr = 1e-4\nbf16 = True\n")
    (found,) = compare("one.py", "other.py").training
    assert "supported" in str(found.left and found.left.value)
