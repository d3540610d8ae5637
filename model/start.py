"""An engine from names: model, device and drafter, with what can go wrong put into words."""

import logging
from pathlib import Path

import torch

from model.engine import Engine
from model.load import ModelError, load
from model.runner import STAGED
from model.trained import AUTO, choose, load_drafter
from model.whisper import Cache

logger = logging.getLogger(__name__)


def start(
    name: str, *, device: str = "auto", threads: int = 0, slots: int = 4, drafter: str = AUTO
) -> Engine:
    """An engine for the model called `name`.

    device: "cpu", "cuda", or "auto" for CUDA where there is one. threads: of the CPU; 0 leaves
    torch's choice. drafter: a file that `save_drafter` wrote, "none", or "auto" for the bundled one
    if the model has one. Raises ModelError, also when the device or its memory is missing.
    """
    if threads:
        torch.set_num_threads(threads)
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda" and not torch.cuda.is_available():
        raise ModelError(
            "no CUDA device can be used here: start with device = cpu, or check the driver"
        )
    checkpoint = load(name)
    file = choose(drafter, checkpoint)
    trained = None if file is None else load_drafter(file, checkpoint)
    dtype = torch.float32 if device == "cpu" else torch.float16
    caches = Cache.bytes_for(checkpoint.config, slots + (0 if device == "cpu" else STAGED), dtype)
    weights = sum(tensor.numel() for tensor in checkpoint.weights.values()) * dtype.itemsize
    free = _free_bytes(device)
    sizes = (
        f"{name} needs {weights / 2**20:,.0f} MiB for its weights and {caches / 2**20:,.0f} MiB "
        f"for {slots} slots"
    )
    if weights + caches > free:
        raise ModelError(
            f"{sizes}, and {free / 2**20:,.0f} MiB are free: take fewer slots or a smaller model"
        )
    logger.info("%s, in %s on %s", sizes, str(dtype).removeprefix("torch."), device)
    try:
        return Engine(checkpoint, device=device, slots=slots, drafter=trained)
    except torch.OutOfMemoryError as error:
        raise ModelError(
            f"the model {name} with {slots} slots does not fit the device's memory: take fewer "
            f"slots or a smaller model ({str(error).splitlines()[0]})"
        ) from None


def _free_bytes(device: str) -> int:
    """Memory that may still be taken: the device's, or what the kernel calls available."""
    if device == "cuda":
        free, _ = torch.cuda.mem_get_info()
        return int(free)
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise ModelError("the kernel does not say how much memory is available (/proc/meminfo)")
