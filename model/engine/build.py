"""An engine from names: model, device and drafter. Errors are sentences for users."""

import logging
from pathlib import Path

import torch
from torch import Tensor

from model.checkpoints.load import Checkpoint, ModelError, load
from model.drafting.drafter_files import AUTO, TrainedDrafter, choose, load_drafter
from model.engine.batch_sizes import STAGED
from model.engine.engine import Engine
from model.whisper.network import Cache
from model.whisper.quantised import MIXED_IN, Precision, missing_instructions

logger = logging.getLogger(__name__)


def build(
    name: str,
    *,
    device: str = "auto",
    threads: int = 0,
    slots: int = 4,
    drafter: str = AUTO,
    precision: Precision = "float32",
) -> Engine:
    """An engine for the model called `name`.

    device: "cpu", "cuda", or "auto" for CUDA where there is one. threads: of the CPU; 0 leaves
    torch's choice. drafter: a file that `save_network` wrote, "none", or "auto" for the
    bundled one if the model has one. precision: the target's arithmetic on the CPU; "int8" is another,
    faster target, for CPUs with its instructions. Raises ModelError, also when the device, its memory
    or its instructions are missing.
    """
    if threads:
        torch.set_num_threads(threads)
    device = _device(device, precision)
    checkpoint = load(name)
    drafts = choose(drafter, checkpoint)
    trained = None if drafts is None else load_drafter(drafts, checkpoint)
    _check_memory(checkpoint, trained, slots, device, precision)
    try:
        return Engine(checkpoint, device=device, slots=slots, drafter=trained, precision=precision)
    except torch.OutOfMemoryError as error:
        raise ModelError(
            f"the model {name} with {slots} slots does not fit the device's memory: take fewer "
            f"slots or a smaller model ({str(error).splitlines()[0]})"
        ) from None


def _device(asked: str, precision: Precision) -> str:
    """The device to take. Raises ModelError where it, or what `precision` needs of it, is missing."""
    device = asked
    if asked == "auto":
        device = "cuda" if torch.cuda.is_available() and precision != "int8" else "cpu"
    if device == "cuda" and not torch.cuda.is_available():
        raise ModelError(
            "no CUDA device can be used here: start with device = cpu, or check the driver"
        )
    if precision == "int8":
        check_int8(device)
    return device


def _check_memory(
    checkpoint: Checkpoint,
    drafter: TrainedDrafter | None,
    slots: int,
    device: str,
    precision: Precision,
) -> None:
    """Log what weights and slots need. Raises ModelError where that is not free."""
    dtype = torch.float32 if device == "cpu" else torch.float16
    total_slots = slots + (0 if device == "cpu" else STAGED)
    mixed = MIXED_IN if precision == "int8" else dtype
    config = checkpoint.config
    caches = Cache.bytes_for(config, total_slots, mixed, config.decoder_layers)
    if drafter is not None:
        caches += Cache.bytes_for(config, total_slots, dtype, drafter.layers)
    weights = weight_bytes(checkpoint.weights, dtype, device, precision)
    free = _free_bytes(device)
    sizes = (
        f"{checkpoint.name} needs {weights / 2**20:,.0f} MiB for its weights and "
        f"{caches / 2**20:,.0f} MiB for {slots} slots"
    )
    if weights + caches > free:
        raise ModelError(
            f"{sizes}, and {free / 2**20:,.0f} MiB are free: take fewer slots or a smaller model"
        )
    kind = precision if device == "cpu" else str(dtype).removeprefix("torch.")
    logger.info("%s, in %s on %s", sizes, kind, device)


def check_int8(device: str) -> None:
    """Raises ModelError where the int8 target cannot run."""
    if device != "cpu":
        raise ModelError("precision = int8 is for the CPU: take device = cpu, or float32")
    missing = missing_instructions()
    if missing:
        raise ModelError(
            f"precision = int8 needs a CPU with {' and '.join(missing)} (AMD Zen 4, Intel Sapphire "
            "Rapids or newer): take precision = float32"
        )


def weight_bytes(
    weights: dict[str, Tensor], dtype: torch.dtype, device: str, precision: Precision
) -> int:
    """Bytes of the target's weights. On the CPU its output head is a packed copy of the embedding."""
    linear = sum(w.numel() for name, w in weights.items() if w.ndim == 2 and ".layers." in name)
    head = weights["decoder.embedding.weight"].numel() if device == "cpu" else 0
    others = sum(w.numel() for w in weights.values()) - linear
    products = 1 if precision == "int8" else dtype.itemsize
    return others * dtype.itemsize + (linear + head) * products


def _free_bytes(device: str) -> int:
    """Bytes of free memory: the device's, or what the kernel calls available."""
    if device == "cuda":
        free, _ = torch.cuda.mem_get_info()
        return int(free)
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise ModelError("the kernel does not say how much memory is available (/proc/meminfo)")
