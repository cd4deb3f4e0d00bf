"""Dtypes by their safetensors names, with the names of other formats."""

from __future__ import annotations

BYTES = {
    "F64": 8, "F32": 4, "F16": 2, "BF16": 2, "C128": 16, "C64": 8, "C32": 4,
    "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "F8_E4M3FNUZ": 1, "F8_E5M2FNUZ": 1,
    "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U64": 8, "U32": 4, "U16": 2, "U8": 1, "BOOL": 1,
}  # fmt: skip
"""Bytes per element."""

BITS = {name: 8 * size for name, size in BYTES.items()} | {"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6}
"""Bits per element; sub-byte dtypes are packed, and only their position is known."""

FLOATS = frozenset(name for name in BYTES if name[0] in "FBC" and name != "BOOL")
"""Dtypes that can hold NaN or infinity."""

_OF_TORCH = {
    "float64": "F64", "double": "F64", "float32": "F32", "float": "F32", "float16": "F16", "half": "F16",
    "bfloat16": "BF16", "complex128": "C128", "complex64": "C64", "complex32": "C32",
    "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "float8_e8m0fnu": "F8_E8M0",
    "float8_e4m3fnuz": "F8_E4M3FNUZ", "float8_e5m2fnuz": "F8_E5M2FNUZ",
    "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8",
    "uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8", "bool": "BOOL",
    "qint8": "I8", "quint8": "U8", "qint32": "I32",
}  # fmt: skip
_OF_STORAGE = {
    "DoubleStorage": "F64", "FloatStorage": "F32", "HalfStorage": "F16", "BFloat16Storage": "BF16",
    "ComplexDoubleStorage": "C128", "ComplexFloatStorage": "C64", "LongStorage": "I64", "IntStorage": "I32",
    "ShortStorage": "I16", "CharStorage": "I8", "ByteStorage": "U8", "BoolStorage": "BOOL",
    "QInt8Storage": "I8", "QUInt8Storage": "U8", "QInt32Storage": "I32", "UntypedStorage": "U8",
}  # fmt: skip


def of_torch(name: str) -> str | None:
    """Map ``torch.NAME`` to a dtype; None if unknown."""
    return _OF_TORCH.get(name)


def of_storage(name: str) -> str | None:
    """Map the storage class ``torch.NAME`` to a dtype; None if unknown."""
    return _OF_STORAGE.get(name)
