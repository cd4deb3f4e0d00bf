from __future__ import annotations

import pytest
import torch

from stayfinite.recipes.policy.groups import advantages_of, equal_share, reward_of


@pytest.mark.parametrize(
    ("text", "ended", "reward"),
    [
        ("<answer>212</answer>", True, 1.0),
        ("400 is 206: <answer>215</answer>", True, 1.0),  # within 5 %
        ("<answer>230</answer>", True, 0.1),
        ("<answer>many</answer>", True, 0.0),  # no number where one is asked for
        ("212", True, 0.0),
        ("", True, 0.0),
        ("<answer>212</answer> and so on", False, 0.0),  # right, and cut off at the limit
    ],
)
def test_an_answer_earns_by_being_right_readable_and_ended(text: str, ended: bool, reward: float) -> None:
    assert reward_of(text, "212", ended=ended, readable=0.1) == reward


def test_advantages_compare_answers_of_one_question_alone() -> None:
    rewards = torch.tensor([1.0, 0.0, 0.0, 0.0, 0.6, 0.6, 0.6, 0.6, 1.0, 1.0, 0.0, 0.0])
    found = advantages_of(rewards, 4).view(3, 4)
    assert torch.allclose(found[0], torch.tensor([3.0, -1.0, -1.0, -1.0]) / 3**0.5)
    assert not found[1].any()  # equal rewards teach nothing, whatever rounding leaves of their spread
    assert torch.allclose(found[2], torch.tensor([1.0, 1.0, -1.0, -1.0]))
    assert equal_share(rewards, 4) == pytest.approx(1 / 3)
