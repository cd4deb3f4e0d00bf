"""Open a file of unknown kind, detected by its first bytes."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

from stayfinite.readers.checkpoints.facts import FileFacts
from stayfinite.readers.checkpoints.formats import safetensors, torch_save
from stayfinite.readers.checkpoints.formats.pickled_tensors import tell_of
from stayfinite.readers.malformed import Fault, Malformed
from stayfinite.readers.pickles.inert import read_inert
from stayfinite.readers.pickles.torch_files import looks_old

SUFFIXES = (".safetensors", ".pt", ".pth", ".ckpt", ".bin", ".distcp")

_OTHERS = {
    b"GGUF": "a GGUF file for inference, not a training checkpoint", b"\x89HDF": "an HDF5 file (Keras)",
    b"\x93NUMPY": "a numpy array", b"\x1f\x8b": "compressed with gzip: unpack it first",
    b"version https://git-lfs": "a Git LFS pointer, not the file itself: run `git lfs pull`",
    b"<!DOCTYPE": "a web page, not a checkpoint: the download failed",
    b"<html": "a web page, not a checkpoint: the download failed",
}  # fmt: skip


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file, since a pipe could block forever. Raises OSError, or Malformed for anything else."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise Malformed("it is not a regular file", kind="unreadable")
    return os.fdopen(descriptor, "rb")


def read_file(path: Path) -> FileFacts:
    """Read a file's contents and problems. Never raises because of the file."""
    facts = FileFacts(path=path)
    try:
        with open_regular(path) as file:
            facts.size = os.fstat(file.fileno()).st_size
            _read(file, facts)
    except Malformed as error:
        facts.complain(error.kind, error.text)
    except OSError as error:
        facts.complain("unreadable", f"cannot read it: {error.strerror or error}")
    return facts


def _read(file: BinaryIO, facts: FileFacts) -> None:
    head = file.read(64)
    file.seek(0)
    if not head:
        raise Malformed("it is empty: 0 bytes", kind="truncated")
    if not any(head):
        raise Malformed(
            f"it starts with zeros ({facts.size:,} bytes): space was reserved but never written", kind="truncated"
        )
    for magic, what in _OTHERS.items():
        if head.startswith(magic):
            facts.format = what.split(",")[0]
            raise Malformed(
                f"it is {what}", kind="foreign" if magic in (b"GGUF", b"\x89HDF", b"\x93NUMPY") else "damaged"
            )
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        torch_save.read_zip(file, facts)
    elif looks_old(head):
        torch_save.read_legacy(file, facts)
    elif facts.path.suffix == ".safetensors" or safetensors.looks_like(head, facts.size):
        safetensors.read(file, facts)
    elif head[0] == 0x80 and head[1] <= 5:
        _read_bare_pickle(file, facts)
    else:
        # With a checkpoint suffix it is damaged; otherwise it is another kind of file.
        kind: Fault = "damaged" if facts.path.suffix in SUFFIXES else "foreign"
        raise Malformed(f"it starts with {head[:8].hex(' ')}: neither safetensors nor torch.save", kind=kind)


def _read_bare_pickle(file: BinaryIO, facts: FileFacts) -> None:
    facts.format = "pickle"
    if facts.size > torch_save.BOUNDS.longest:
        raise Malformed("it is a bare pickle, not from torch.save, and too large to check", kind="unread")
    pickle = read_inert(file, torch_save.BOUNDS)
    tell_of(facts, pickle.globals)
    asked = ", ".join(map(str, pickle.globals[:5])) or "nothing"
    facts.complain("unread", f"it is a bare pickle, not from torch.save, and needs {asked}; not checked")
