"""Notebooks: what their cells have printed is a log."""

import json

import pytest

from stayfinite import diagnose
from stayfinite.readers.logs.notebook_outputs import read_outputs

LOSSES = [f"epoch {epoch} loss {3 - epoch / 10}\n" for epoch in range(11)]
LOST = [f"epoch {epoch} loss nan\n" for epoch in range(11, 30)]
FRAME = "   age  fare\n0  NaN   7.2\n1  3.0   NaN\n"


def printed(*lines):
    return {"output_type": "stream", "name": "stdout", "text": list(lines)}


def shown(text, **more):
    return {"output_type": "execute_result", "execution_count": 1, "metadata": {}, "data": {"text/plain": text} | more}


def raised(*lines):
    return {"output_type": "error", "ename": "RuntimeError", "evalue": "", "traceback": list(lines)}


def write(folder, *outputs, indent=1):
    cells = [
        {"cell_type": "code", "execution_count": 1, "metadata": {}, "source": ["train()"], "outputs": list(outputs)}
    ]
    path = folder / "train.ipynb"
    path.write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=indent))
    return path


@pytest.mark.parametrize("indent", [1, None])
def test_losses_that_a_cell_printed_are_judged_as_those_of_a_log(tmp_path, indent):
    found = diagnose(write(tmp_path, printed(*LOSSES, *LOST), indent=indent))
    assert found.verdict == "sick"
    assert found.trouble == ["the loss is NaN or inf from step 11, after 11 finite losses"]
    assert found.sources[0].read_as == "log"


def test_a_place_is_a_line_of_the_file_where_the_file_has_lines(tmp_path):
    path = write(tmp_path, printed(*LOSSES, *LOST), shown("0"), printed("epoch 30 loss nan\n"))
    (series,) = read_outputs(path)
    lines = path.read_text().splitlines()
    assert series.source == str(path)
    assert all(f"epoch {point.step:.0f} loss" in lines[point.line - 1] for point in series.points)


def test_of_a_file_in_one_line_the_printed_lines_are_counted(tmp_path):
    path = write(tmp_path, printed("".join(LOSSES[:4])), printed("".join(LOSSES[4:])), indent=None)
    (series,) = read_outputs(path)
    assert (series.source, [point.line for point in series.points]) == (f"{path} output", [*range(1, 12)])


def test_a_notebook_that_trains_well_is_healthy_whatever_is_missing_in_its_data(tmp_path):
    path = write(tmp_path, shown(FRAME, **{"text/html": "<table>NaN</table>"}), printed(*LOSSES), shown(FRAME))
    assert diagnose(path).verdict == "healthy"


def test_data_that_a_notebook_prints_is_no_log(tmp_path):
    assert read_outputs(write(tmp_path, printed(FRAME), shown(FRAME))) == []


def test_an_error_behind_losses_is_how_the_training_ended(tmp_path):
    lines = "Traceback (most recent call last)", "\x1b[0;31mRuntimeError\x1b[0m: CUDA out of memory."
    assert diagnose(write(tmp_path, printed(*LOSSES), raised(*lines))).cause.cause == "out-of-memory"
    assert read_outputs(write(tmp_path, raised(*lines))) == []


def test_a_log_beside_a_notebook_is_judged_without_its_outputs(tmp_path):
    write(tmp_path, printed(*LOSSES, *LOST))
    log = tmp_path / "train.log"
    log.write_text("".join(LOSSES))
    assert diagnose(tmp_path).verdict == "healthy"
    assert diagnose(tmp_path / "train.ipynb", log).verdict == "healthy"


def test_half_a_notebook_gives_the_losses_of_its_whole_part(tmp_path):
    path = write(tmp_path, printed(*LOSSES, *LOST))
    path.write_text(path.read_text()[:1000])
    assert read_outputs(path)[0].points_seen > 5
