"""Runs that failed for a reason of device, distribution or installation, and runs that look alike and did not."""

from rules.example import Example

FALLING = "\n".join(
    f"{{'loss': {2.9 - 0.05 * i:.4f}, 'grad_norm': {1.1 + 0.02 * (i % 4):.3f}, 'learning_rate': 2e-05, 'epoch': "
    f"{i / 40:.2f}}}"
    for i in range(24)
)
NAN_NORM = (
    "{'loss': 1.8121, 'grad_norm': 0.91, 'learning_rate': 1e-05, 'epoch': 0.01}\n"
    "{'loss': 1.7902, 'grad_norm': nan, 'learning_rate': 1e-05, 'epoch': 0.02}\n"
    "{'loss': 1.8055, 'grad_norm': nan, 'learning_rate': 1e-05, 'epoch': 0.03}\n"
)

EXAMPLES: dict[str, tuple[Example, Example]] = {
    "device-mismatch": (
        Example(
            log="Traceback (most recent call last):\n"
            '  File "train.py", line 88, in <module>\n    optimizer.step()\n'
            '  File "torch/optim/adam.py", line 141, in step\n    exp_avg.lerp_(grad, 1 - beta1)\n'
            "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cpu "
            "and cuda:1!\n",
            config="resume: runs/7/last.pt\n",
        ),
        Example(  # both on the card: a matter of dtype
            log="RuntimeError: Input type (torch.cuda.HalfTensor) and weight type (torch.cuda.FloatTensor) "
            "should be the same\n",
        ),
    ),
    "ddp-unused-parameters": (
        Example(
            log="[rank1]: RuntimeError: Expected to have finished reduction in the prior iteration before "
            "starting a new one. "
            "This error indicates that your module has parameters that were not used in producing loss.\n",
            config="torchrun --nproc_per_node 4 train.py\n",
        ),
        Example(
            log="UserWarning: find_unused_parameters=True was specified in DDP constructor, but did not find any "
            "unused "
            "parameters in the forward pass.\n" + FALLING,
        ),
    ),
    "rank-desync": (
        Example(
            log=FALLING
            + "\n[rank3]:[E ProcessGroupNCCL.cpp:616] [Rank 3] Watchdog caught collective operation timeout: "
            "WorkNCCL(SeqNum=4183, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600029 "
            "milliseconds "
            "before timing out.\n",
            config="torchrun --nproc_per_node 8 train.py\nif torch.isnan(loss): continue\n",
        ),
        Example(log=FALLING, config="torchrun --nproc_per_node 8 train.py\nddp_timeout: 1800\n"),
    ),
    "deepspeed-overlap-comm": (
        Example(
            log=NAN_NORM,
            config='{"bf16": {"enabled": true}, "zero_optimization": {"stage": 2, "overlap_comm": true, '
            '"contiguous_gradients": true, "reduce_bucket_size": 5e8}}',
            config_name="ds_config.json",
        ),
        Example(
            log=FALLING,
            config='{"bf16": {"enabled": true}, "zero_optimization": {"stage": 2, "overlap_comm": true, '
            '"contiguous_gradients": true}}',
            config_name="ds_config.json",
        ),
    ),
    "hardware": (
        Example(
            log=FALLING + "\nNVRM: Xid (PCI:0000:3b:00): 94, pid=81233, name=python, Contained ECC error\n"
            "RuntimeError: CUDA error: uncorrectable ECC error encountered\n",
        ),
        Example(
            log="NVRM: Xid (PCI:0000:3b:00): 31, pid=99, name=python, MMU Fault\n"
            "../aten/src/ATen/native/cuda/Indexing.cu:1236: Assertion `srcIndex < srcSelectDimSize` failed.\n"
            "RuntimeError: CUDA error: device-side assert triggered\n",
            config="tokenizer: 12 tokens added\n",
        ),
    ),
    "environment": (
        Example(
            log="UserWarning: NVIDIA GeForce RTX 3060 with CUDA capability sm_86 is not compatible with the "
            "current PyTorch "
            "installation.\nRuntimeError: CUDA error: no kernel image is available for execution on the device\n",
        ),
        Example(
            log="UserWarning: xFormers is not available, falling back\n" + FALLING,
            config="torch: 2.3.1\ncuda: 12.1\ngpu: RTX 3060\n",
        ),
    ),
    "upstream-bug": (
        Example(
            log="{'loss': 1.41, 'grad_norm': 0.8}\n{'loss': nan, 'grad_norm': nan}\n{'loss': nan, 'grad_norm': nan}\n",
            config="accelerate: 0.34.0\nnote: the same script is fine with accelerate 0.33.0\n",
        ),
        Example(log=FALLING, config="deepspeed: 0.13.1\ntorch: 2.2.0\n"),
    ),
    "out-of-memory": (
        Example(
            log=FALLING
            + "\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.44 GiB. GPU 0 has a total capacity "
            "of 23.69 GiB of which 1.02 GiB is free.\n",
            config="per_device_train_batch_size: 16\n",
        ),
        Example(
            log="| epoch 003 | loss 4.011 | ppl 16.1 | gnorm 0.61 | clip 0% | oom 0 | wall 812\n"
            "| epoch 004 | loss 3.702 | ppl 13.0 | gnorm 0.58 | clip 0% | oom 0 | wall 1061\n"
            "| epoch 005 | loss 3.515 | ppl 11.4 | gnorm 0.55 | clip 0% | oom 0 | wall 1307\n",
        ),
    ),
    "step-fails": (
        Example(observed={"step.error": "ValueError: not enough values to unpack (expected 3, got 2)"}),
        Example(observed={"step.error": ""}),
    ),
}
