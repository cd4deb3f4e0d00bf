"""Where nothing is wrong, nothing is said."""

import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from inspection.healthy_setups import NAMED, OTHERS, Setup, gpt
from quick_ones import quick_ones
from stayfinite import preflight


def loud(setup: Setup) -> list[str]:
    found = preflight(setup.model, setup.optimizer, setup.batch, setup.forward)
    return [f"{each.cause} {each.confidence}: {each.evidence}" for each in found if each.severity != "info"]


@pytest.mark.parametrize("name", quick_ones([*NAMED, *OTHERS], "T5", "LLaMA+LoRA", "MMDiT", *OTHERS))
@pytest.mark.parametrize("seed", quick_ones(range(3), 0))
def test_a_healthy_training_has_no_error_and_no_warning(name, seed):
    torch.manual_seed(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the libraries, on being built
        setup = (NAMED | OTHERS)[name]()
        assert loud(setup) == []


def test_a_model_inside_ddp_is_as_healthy_as_by_itself(tmp_path):
    torch.manual_seed(0)
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/ranks", rank=0, world_size=1)
    try:
        setup = gpt()
        wrapped = nn.parallel.DistributedDataParallel(setup.model)
        setup.model = wrapped
        setup.forward = lambda given: F.cross_entropy(wrapped(given[0]).flatten(0, 1), given[1].flatten())
        assert loud(setup) == []
    finally:
        torch.distributed.destroy_process_group()
