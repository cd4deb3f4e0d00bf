"""Compiles the kernels for a GPU that need not be there, and prints how they load; for test_compiled_kernels.py."""

import json
import re
import sys

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from stayfinite.measure import kernels
from stayfinite.measure.movement import BLOCK, COMPARING_WARPS
from stayfinite.measure.one_pass import COLUMNS, TOTAL_WIDTH, TUNING
from stayfinite.measure.one_pass import FOLD_WIDTH as CHUNK_WIDTH
from stayfinite.measure.spike_kernel import judge_step
from stayfinite.measure.spikes import WARPS, WIDEST

LONG, INT, FLOAT, DOUBLE = "*i64", "*i32", "*fp32", "*fp64"
PARTIAL = {"squares": FLOAT, "peaks": INT, "zeros": INT, "bad": INT}
SUBSET = {
    "addresses": LONG, "owners": INT, "places": INT, "strides": LONG, "counts": INT, "offsets": LONG, "first": "i32",
    "table_out": DOUBLE,
}  # fmt: skip


def compiled(kernel: object, types: dict[str, str], warps: int, **constants: object) -> str:
    signature = {name: types.get(name, "constexpr") for name in kernel.arg_names}
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants)
    target = GPUTarget("cuda", int(sys.argv[1]), 32)
    return triton.compile(source, target=target, options={"num_warps": warps}).asm["ptx"]


def loads(code: str) -> dict[str, int]:
    found = re.findall(r"ld\.global\.(v4\.b32|b64|b32|b16)", code)
    return {kind: found.count(kind) for kind in set(found)}


report = {}
for dtype, element in kernels.ELEMENTS.items():
    name = str(dtype).removeprefix("torch.")
    code = compiled(
        kernels.look_at_chunks,
        {"addresses": LONG, "sizes": LONG, "owners": INT, "places": INT, "first": "i32"}
        | {f"{field}_out": kind for field, kind in PARTIAL.items()},
        TUNING.warps, ELEMENT=element, BYTES=dtype.itemsize, CHUNK=TUNING.chunk, BLOCK=TUNING.block,
        UNROLL=TUNING.unroll,
    )  # fmt: skip
    report[name] = loads(code)
    kept = {"kept": {torch.float32: FLOAT, torch.bfloat16: "*bf16", torch.float16: "*fp16"}[dtype]}
    compiled(kernels.take_subset, SUBSET | kept, 4, ELEMENT=element, BLOCK=BLOCK)
    for columns in (1, COLUMNS):
        compiled(kernels.compare_subset, SUBSET | kept, COMPARING_WARPS, ELEMENT=element, BLOCK=BLOCK, COLUMNS=columns)
types = {"starts": INT, "sizes": LONG, "squares_out": DOUBLE, "norms_out": DOUBLE, "zeros_out": LONG}
types |= {"table_out": DOUBLE} | {f"{field}_in": kind for field, kind in PARTIAL.items()}
compiled(kernels.fold_chunks, types, 4, WIDTH=CHUNK_WIDTH, COLUMNS=COLUMNS)
compiled(kernels.fold_tensors, {"squares_in": DOUBLE, "total_out": FLOAT, "tensors": "i32"}, 4, WIDTH=TOTAL_WIDTH)
judged = {"loss_in": DOUBLE, "norm_in": FLOAT, "settings": DOUBLE, "window": DOUBLE, "counts": LONG, "places": LONG}
judged |= {"strikes_at": LONG, "quiet_at": LONG, "judged_out": DOUBLE, "refused_out": FLOAT, "divisor_out": FLOAT}
judged |= {"course": DOUBLE, "size": "i32", "warmup": "i32", "level_change_after": "i32", "mode": "i32"}
for padded in (4, 128, WIDEST):
    code = compiled(judge_step, judged, WARPS, PADDED=padded)
    between = code[code.rindex("ld.global") : code.index("st.global")]
    if "bar.sync" not in between:
        sys.exit("judge_step: a warp may read what another one has written already")
print(json.dumps(report))
