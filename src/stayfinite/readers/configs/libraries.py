"""Whether a script is all there is: its imports cannot do what it leaves out."""

from __future__ import annotations

import ast
import sys
from collections.abc import Collection, Iterator, Sequence

_TRAIN_NOTHING = frozenset({
    "torch", "torchvision", "torchaudio", "torchtext", "torchdata", "torchmetrics", "torchinfo", "torchsummary",
    "torchdiffeq", "torch_geometric", "torch_scatter", "torch_sparse", "torch_cluster", "dgl", "ogb", "timm", "kornia",
    "numpy", "scipy", "sklearn", "pandas", "polars", "statsmodels", "sympy", "networkx", "numba", "joblib", "h5py",
    "matplotlib", "seaborn", "plotly", "PIL", "cv2", "imageio", "skimage", "albumentations", "torchio", "nibabel",
    "librosa", "soundfile", "pyworld", "tqdm", "rich", "yaml", "toml", "click", "typer", "fire", "omegaconf", "hydra",
    "absl", "easydict", "attr", "pydantic", "einops", "opt_einsum", "tensorboard", "tensorboardX", "wandb", "mlflow",
    "visdom", "loguru", "colorama", "termcolor", "tabulate", "psutil", "requests", "nltk", "spacy", "jieba", "tiktoken",
    "tokenizers", "sentencepiece", "sacrebleu", "datasets", "evaluate", "gym", "gymnasium", "ale_py", "faiss",
    "trimesh", "open3d", "rdkit", "ase", "Bio", "six", "future", "packaging", "dateutil", "lmdb", "msgpack", "regex",
    "unidecode",
})  # fmt: skip
"""Libraries besides the standard one: they build, load, measure and draw, and leave a script's loop alone."""


def trains_nothing(module: str) -> bool:
    """Whether a module is of a library that neither steps, clears, switches modes nor scales for a script."""
    head = module.partition(".")[0]
    return head in _TRAIN_NOTHING or head in sys.stdlib_module_names


def is_complete(nodes: Sequence[ast.AST], beside: Collection[ast.AST] = ()) -> bool:
    """Whether a script imports libraries only, and of other code just what never gets its model, optimizer or loss.

    ``nodes`` are all of its syntax tree, and of the modules whose imports ``beside`` has.
    """
    others: set[str] = set()
    for node in nodes:
        for module, name in _imported(node) if node not in beside else ():
            if not trains_nothing(module):
                others.add(name)
    if "*" in others:
        return False
    trained = {_root(node.value) for node in nodes if isinstance(node, ast.Attribute) and node.attr in _OF_TRAINING}
    made = {name for node in nodes for name in _made_by(node, others)}
    for node in nodes:
        if isinstance(node, ast.ClassDef) and any(_root(base) in others for base in node.bases):
            return False
        if not isinstance(node, ast.Call):
            continue
        given = [*node.args, *(each.value for each in node.keywords)]
        if _root(node.func) in others and any(_root(each) in trained for each in given):
            return False
        owner = node.func.value if isinstance(node.func, ast.Attribute) else None
        if isinstance(node.func, ast.Attribute) and node.func.attr.startswith("step_"):
            return False  # an optimizer of another's own
        own = owner is not None and _root(owner) in made & trained and isinstance(owner, ast.Name)
        if own and isinstance(node.func, ast.Attribute) and node.func.attr not in _OF_MODULES | _OF_TRAINING:
            return False
    return True


_OF_TRAINING = frozenset({"backward", "step", "zero_grad", "train", "eval", "parameters", "named_parameters"})
_OF_MODULES = frozenset({
    "to", "cuda", "cpu", "half", "float", "double", "forward", "state_dict", "load_state_dict", "apply", "modules",
    "named_modules", "children", "named_children", "requires_grad_", "buffers", "type", "compile", "share_memory",
})  # fmt: skip
"""What any model does when asked, and nothing else."""


def _imported(node: ast.AST) -> Iterator[tuple[str, str]]:
    """``(module, name in the script)`` of an import."""
    if isinstance(node, ast.Import):
        for each in node.names:
            yield each.name, each.asname or each.name.partition(".")[0]
    elif isinstance(node, ast.ImportFrom):
        for each in node.names:
            yield node.module if node.module and not node.level else ".", each.asname or each.name


def _made_by(node: ast.AST, others: set[str]) -> Iterator[str]:
    """The names that get what other code returns."""
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and _root(node.value.func) in others:
        for target in node.targets:
            yield from (each.id for each in ast.walk(target) if isinstance(each, ast.Name))


def _root(node: ast.AST) -> str:
    """`model` of `model.module.head(x)[0]`."""
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call, ast.Starred)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""
