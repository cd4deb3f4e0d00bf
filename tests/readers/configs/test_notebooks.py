"""Notebooks: the same code gives the same settings, wherever it stands."""

import json

from stayfinite.readers.configs import read_config

CELLS = [
    "import torch\nfrom transformers import TrainingArguments, AutoModel\nLR = 2e-5\n",
    'model = AutoModel.from_pretrained(\n    "google/mt5-small", torch_dtype=torch.float16\n)\nmodel.half()\n',
    "args = TrainingArguments(output_dir='x', fp16=True, learning_rate=LR)\n",
    "for batch in loader:\n    loss = model(**batch).loss\n    loss.backward()\n",
]


def notebook(cells, *, as_lists=True):
    return {
        "cells": [{"cell_type": "markdown", "metadata": {}, "source": ["# fp16 = False\n"]}]
        + [
            {
                "cell_type": "code",
                "execution_count": 1,
                "metadata": {},
                "outputs": [{"output_type": "stream", "text": ["lr = 99\n"]}],
                "source": cell.splitlines(keepends=True) if as_lists else cell,
            }
            for cell in cells
        ],
        "metadata": {"kernelspec": {"name": "python3"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def read(folder, cells, **more):
    path = folder / "train.ipynb"
    path.write_text(json.dumps(notebook(cells, **more), indent=1))
    return read_config(path)


def told(settings):
    return [(setting.name, setting.value) for setting in settings]


def test_a_script_and_a_notebook_that_mean_the_same_give_the_same_settings(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("\n".join(CELLS))
    from_script = read_config(script)
    for as_lists in (True, False):
        from_notebook = read(tmp_path, CELLS, as_lists=as_lists)
        assert told(from_notebook) == told(from_script)
        assert [text for _, text in from_notebook.notes] == [text for _, text in from_script.notes]
        assert {setting.kind for setting in from_notebook} == {"notebook"}
    assert from_script.value("TrainingArguments.learning_rate") == 2e-5


def test_places_are_lines_of_the_notebook_file(tmp_path):
    settings = read(tmp_path, CELLS)
    lines = (tmp_path / "train.ipynb").read_text().splitlines()
    assert "torch_dtype" in lines[settings.find("torch_dtype").line - 1]
    assert "fp16=True" in lines[settings.find("fp16").line - 1]


def test_magics_and_shell_lines_are_read_as_commands(tmp_path):
    settings = read(
        tmp_path,
        [
            "%load_ext reload\n%env CUDA_LAUNCH_BLOCKING=1\n!python train.py --fp16 \\\n  --lr 1e-4\nx = 3\nlist?\n",
            "if True:\n    !pip install -q transformers\n    bf16 = False\n",
            "%%bash\nLR=3e-4\ntorchrun train.py --learning_rate $LR\n",
            '%%writefile ds.json\n{"zero_optimization": {"stage": 2}}\n',
            "%%html\n<b>lr = 7</b>\n",
        ],
    )
    names = ["CUDA_LAUNCH_BLOCKING", "fp16", "--lr", "x", "bf16", "learning_rate", "stage"]
    assert [settings.value(name) for name in names] == ["1", True, 1e-4, 3, False, 3e-4, 2]
    assert any(text == "python train.py --fp16 --lr 1e-4" for _, text in settings.notes)
    assert 7 not in [setting.value for setting in settings]


def test_half_a_notebook_yields_its_whole_cells(tmp_path):
    path = tmp_path / "half.ipynb"
    whole = json.dumps(notebook(CELLS), indent=1)
    path.write_text(whole[: whole.index("loss.backward")])
    settings = read_config(path)
    assert settings.value("fp16") is True
    assert any("incomplete" in text for _, text in settings.notes)


def test_the_notebooks_of_2014_keep_their_cells_in_worksheets(tmp_path):
    path = tmp_path / "old.ipynb"
    path.write_text(
        json.dumps({"worksheets": [{"cells": [{"cell_type": "code", "input": ["lr = 0.1\n"]}]}], "nbformat": 3})
    )
    assert read_config(path).value("lr") == 0.1


def test_a_notebook_with_large_pictures_is_read_with_its_lines(tmp_path):
    picture = {"output_type": "display_data", "data": {"image/png": "iVBOR" + "A" * 6_000_000 + "=="}}
    cells = [
        {"cell_type": "code", "source": ["plot()\n"], "outputs": [picture]},
        {"cell_type": "code", "source": ["learning_rate = 3e-4\n"], "outputs": []},
    ]
    path = tmp_path / "plots.ipynb"
    path.write_text(json.dumps({"cells": cells, "nbformat": 4}, indent=1))
    (setting,) = read_config(path)
    line = next(number for number, text in enumerate(path.read_text().split("\n"), 1) if "learning_rate" in text)
    assert (setting.name, setting.value, setting.line) == ("learning_rate", 3e-4, line)


REBUILT = [
    "import torch\nfrom torch import nn\nmodel = nn.Linear(8, 2)\n",
    "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n",
    "%matplotlib inline\nmodel = nn.Linear(8, 2)\n",
    (
        "for x, y in loader:\n    optimizer.zero_grad()\n    loss = nn.functional.cross_entropy(model(x), y)\n"
        "    loss.backward()\n    optimizer.step()\n"
    ),
]


def test_cells_are_judged_as_one_program(tmp_path):
    (fault,) = read(tmp_path, REBUILT).code_faults
    line = int(fault.where.rpartition(":")[2])
    assert fault.cause == "params-not-in-optimizer"
    assert "torch.optim.SGD" in (tmp_path / "train.ipynb").read_text().splitlines()[line - 1]
    assert read(tmp_path, [REBUILT[0], REBUILT[2], REBUILT[1], REBUILT[3]]).code_faults == []
