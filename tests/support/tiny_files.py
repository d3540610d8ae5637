"""The tiny Whisper on disk, as Transformers and CTranslate2 write it."""

import hashlib
import json
import struct
from pathlib import Path

import torch
from torch import Tensor

from model.checkpoints.load import Checkpoint, Package
from model.checkpoints.reference import as_transformers
from model.checkpoints.tensor_names import ctranslate2_names
from tests.support.tiny import random_weights, tiny_config, tiny_tokens, write_tokenizer

CODES = {
    torch.float32: 0,
    torch.int8: 1,
    torch.int16: 2,
    torch.int32: 3,
    torch.float16: 4,
    torch.bfloat16: 5,
}


def string(text: str) -> bytes:
    return struct.pack("<H", len(text) + 1) + text.encode() + b"\0"


def model_bin(
    variables: dict[str, Tensor],
    *,
    version: int = 6,
    spec: str = "WhisperSpec",
    aliases: tuple[tuple[str, str], ...] = (
        ("decoder/projection/weight", "decoder/embeddings/weight"),
    ),
) -> bytes:
    """A model.bin as CTranslate2 writes it."""
    out = struct.pack("<I", version) + string(spec) + struct.pack("<II", 3, len(variables))
    for name, tensor in variables.items():
        raw = bytes(tensor.contiguous().reshape(-1).view(torch.uint8).numpy())
        out += string(name) + struct.pack("<B", tensor.ndim)
        out += b"".join(struct.pack("<I", size) for size in tensor.shape)
        out += struct.pack("<BI", CODES[tensor.dtype], len(raw)) + raw
    out += struct.pack("<I", len(aliases))
    return out + b"".join(string(alias) + string(name) for alias, name in aliases)


CONFIG = tiny_config()
WEIGHTS = random_weights(CONFIG)


def save_transformers(directory: Path, *, shards: int = 1) -> Path:
    """The tiny model as `save_pretrained` writes it."""
    checkpoint = Checkpoint("t", "tests", CONFIG, tiny_tokens(), WEIGHTS, ())
    size = "100GB" if shards == 1 else "100KB"
    model = as_transformers(checkpoint)
    model.generation_config.suppress_tokens = [7, 8]
    model.generation_config.begin_suppress_tokens = [9]
    model.save_pretrained(directory, max_shard_size=size)
    write_tokenizer(directory)
    return directory


def ctranslate2_variables(dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """Our names back to CTranslate2's."""
    table = ctranslate2_names(dict.fromkeys(_ctranslate2_layers(), torch.empty(0)))
    variables = {stored: WEIGHTS[ours].to(dtype) for ours, ((stored,), _) in table.items()}
    for room in ("encoder", "decoder"):
        variables[f"{room}/num_heads"] = torch.tensor(2, dtype=torch.int16)
        variables[f"{room}/pre_norm"] = torch.tensor(1, dtype=torch.int8)
    return variables


def _ctranslate2_layers() -> list[str]:
    return [f"{room}/layer_{i}/x" for room in ("encoder", "decoder") for i in range(2)]


def save_ctranslate2(directory: Path, dtype: torch.dtype = torch.float16) -> Path:
    """The tiny model as faster-whisper users have it on disk."""
    (directory / "model.bin").write_bytes(model_bin(ctranslate2_variables(dtype)))
    (directory / "config.json").write_text(
        json.dumps({"suppress_ids": [7, 8], "suppress_ids_begin": [9], "lang_ids": []})
    )
    write_tokenizer(directory)
    return directory


def in_parts(folder: Path, whole: bytes) -> Package:
    """A model.bin in the pieces of two packages, which can be imported from `folder`."""
    parts = []
    for number, piece in ((1, whole[: len(whole) // 3]), (2, whole[len(whole) // 3 :])):
        data = folder / f"tinypart{number}" / "data"
        data.mkdir(parents=True)
        (data.parent / "__init__.py").touch()
        (data / f"model.bin.part{number}").write_bytes(piece)
        parts.append((f"tinypart{number}", f"data/model.bin.part{number}"))
    (folder / "tinypart1" / "data" / "config.json").write_text("{}")
    digest = hashlib.sha256(whole).hexdigest()
    return Package(("tinypart1", "tinypart2"), "tinypart1", "data", tuple(parts), digest)
