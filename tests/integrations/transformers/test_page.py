"""The page for users is true: its code runs, and what it names is there."""

import re
from pathlib import Path

import pytest

from tiny_trainers import Sentences, arguments, events, tiny_t5

PAGE = Path(__file__).parents[3] / "docs" / "integrations" / "transformers.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_the_code_on_the_page_runs(tmp_path, block):
    args = arguments(tmp_path, max_steps=9, train_sampling_strategy="sequential", logging_steps=3)
    given = {"model": tiny_t5(), "args": args, "data": Sentences(bad=(51,))}
    exec(compile(block, str(PAGE), "exec"), given)
    if "trainer" not in given:
        return
    assert [event["step"] for event in events(tmp_path, "veto")] == [7]
    logged = {key for each in given["trainer"].state.log_history for key in each}
    for key in ("loss", "grad_norm", "stayfinite/vetoes", "stayfinite/refused_loss", "stayfinite/found/bad-data-row"):
        assert key in logged
        assert key in PAGE.read_text()


def test_the_methods_that_the_page_names_are_those_that_are_exchanged():
    from stayfinite.integrations.transformers import attachment as transformers_attachment

    source = Path(transformers_attachment.__file__).read_text()
    exchanged = set(re.findall(r'put\((?:trainer|accelerator|self\._optimizer), "(\w+)"', source))
    assert exchanged == {"training_step", "log", "_run_epoch", "_finalize_training", "clip_grad_norm_", "step"}
    for name in exchanged:
        assert f"`{name}`" in PAGE.read_text()
