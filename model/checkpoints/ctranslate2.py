"""Read CTranslate2's `model.bin` (format version 6, WhisperSpec) into tensors.

Layout, little-endian: u32 version, string spec name, u32 spec revision, u32 count; then for each
variable a string name, u8 rank, u32 dimensions, u8 type, u32 byte count and the bytes; then u32
count and pairs of strings (alias, variable). A string is a u16 length that counts the closing NUL.
"""

import math
import struct

import torch
from torch import Tensor

_VERSION = 6
_DTYPES = {
    0: torch.float32,
    1: torch.int8,
    2: torch.int16,
    3: torch.int32,
    4: torch.float16,
    5: torch.bfloat16,
}
# Settings of the architecture, checked or derived elsewhere.
_IGNORED = {
    f"{part}/{name}"
    for part in ("encoder", "decoder")
    for name in (
        "activation",
        "alibi",
        "alibi_use_positive_positions",
        "alignment_heads",
        "alignment_layer",
        "layernorm_embedding",
        "multi_query_attention",
        "num_heads_kv",
        "pre_norm",
        "scale_alibi",
        "scale_embeddings",
        "start_from_zero_embedding",
    )
}


class _Cursor:
    """A position in the file. Raises ValueError at the end of a file that is cut short."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._at = 0

    def take(self, count: int) -> memoryview:
        piece = self._data[self._at : self._at + count]
        if len(piece) < count:
            raise ValueError("model.bin ends too early: the file is cut short or damaged")
        self._at += count
        return piece

    def number(self, code: str) -> int:
        (value,) = struct.unpack(f"<{code}", self.take(struct.calcsize(code)))
        return int(value)

    def string(self) -> str:
        return bytes(self.take(self.number("H"))[:-1]).decode("utf-8", "replace")


def read_ctranslate2(data: memoryview) -> dict[str, Tensor]:
    """Every weight under its CTranslate2 name; int8 and int16 matrices are dequantised to float32.

    data: the whole file; tensors are copies. Raises ValueError, worded for the user, for another format.
    """
    cursor = _Cursor(data)
    version = cursor.number("I")
    if version != _VERSION:
        raise ValueError(f"model.bin has CTranslate2 format version {version}; {_VERSION} is read")
    spec = cursor.string()
    if spec != "WhisperSpec":
        raise ValueError(f"model.bin holds a {spec}, not a WhisperSpec")
    cursor.number("I")  # spec revision: 2 and 3 differ in alignment heads alone, which are ignored
    variables = dict(_variable(cursor) for _ in range(cursor.number("I")))
    for _ in range(cursor.number("I")):
        alias, variable = cursor.string(), cursor.string()
        if (alias, variable) != ("decoder/projection/weight", "decoder/embeddings/weight"):
            raise ValueError(f"model.bin aliases {alias} to {variable}; Whisper's head is tied")
    return {
        name: _dequantise(tensor, variables.get(f"{name}_scale"))
        for name, tensor in variables.items()
        if name not in _IGNORED and not name.endswith("_scale")
    }


def _variable(cursor: _Cursor) -> tuple[str, Tensor]:
    name = cursor.string()
    shape = [cursor.number("I") for _ in range(cursor.number("B"))]
    kind = cursor.number("B")
    dtype = _DTYPES.get(kind)
    if dtype is None:
        raise ValueError(f"model.bin stores {name} as type {kind}; known are {sorted(_DTYPES)}")
    piece = cursor.take(cursor.number("I"))
    if len(piece) != math.prod(shape) * dtype.itemsize or not piece:
        raise ValueError(f"model.bin stores {name} {shape} in {len(piece)} bytes of {dtype}")
    # The copy is aligned as tensors must be; bytes in the file are not.
    tensor = torch.frombuffer(bytearray(piece), dtype=dtype)
    return name, tensor.reshape(shape)


def _dequantise(tensor: Tensor, scale: Tensor | None) -> Tensor:
    if scale is None:
        return tensor
    # CTranslate2 stores round(weight * scale), with a scale for each output row or for the matrix.
    rows = scale.float().reshape(-1, *[1] * (tensor.ndim - 1)) if scale.ndim else scale.float()
    return tensor.float() / rows
