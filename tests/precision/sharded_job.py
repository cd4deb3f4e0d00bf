"""Run under torchrun: a model with a plan, sharded by ``fully_shard``, held against the same one in one piece."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

from precision.small_models import healthy, training
from precision.test_applying import plan_of
from stayfinite.errors import UsageError


def losses(order: str) -> list[float]:
    model = healthy()
    late = {"blocks__0__up": "fp8"} if order in ("whole", "plan-first") else {}
    plan = plan_of(model, blocks__1__down="fp32", **late)
    if order != "shard-first":
        plan.apply(model)
    if not order.startswith("whole"):
        for block in model.blocks:
            fully_shard(block)
        fully_shard(model)
    if order == "shard-first":
        plan.apply(model)
    model, optimizer, ids, forward = training(model, lr=1e-2)
    found = []
    for _ in range(4):
        optimizer.zero_grad()
        loss = forward(ids)
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    seen = {order: losses(order) for order in ("whole", "plan-first", "whole-fp32", "shard-first")}
    model = healthy()
    fully_shard(model)
    try:
        plan_of(model, blocks__0__up="fp8").apply(model)
    except UsageError as error:
        seen["refused"] = str(error)
    Path(sys.argv[1], f"seen-{dist.get_rank()}.json").write_text(json.dumps(seen))
    dist.destroy_process_group()
