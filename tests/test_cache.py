import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from model.training.data import cache
from model.training.data.cache import CacheError, CacheMetadata
from model.training.data.distil import decode_passages
from tests.support.disk import small_files
from tests.support.lessons import AUX_LAYERS, fill, passages, teacher
from tests.support.tiny import CHECKPOINT

METADATA = CacheMetadata(CHECKPOINT.fingerprint, "tiny", AUX_LAYERS, "en", "a list", 3)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    """Tokens, states and features to the bit; who spoke, from where, under which licence."""
    taught = passages(tmp_path / "audio", 12)
    kept, excluded = decode_passages(teacher(), taught, "en")
    assert kept
    directory = fill(tmp_path / "cache", taught)
    entries = list(cache.entries(directory))
    assert len(entries) == len(kept)
    for entry, (passage, trajectory) in zip(entries, kept, strict=True):
        read = cache.read(entry)
        for name in ("tokens", "states", "features"):
            assert torch.equal(getattr(read, name), getattr(trajectory, name))
        assert (read.prompt_len, entry.tokens) == (trajectory.prompt_len, len(trajectory.tokens))
        assert torch.equal(cache.read_tokens(entry), trajectory.tokens)
        part = passage.parts[0]
        assert (entry.speaker, entry.source, entry.licence) == (part.speaker, part.source, "CC0")
        assert entry.seconds == passage.seconds
    assert cache.excluded(directory) == excluded


@pytest.mark.parametrize(
    "other",
    [
        replace(METADATA, target="another"),
        replace(METADATA, listing="another"),
        replace(METADATA, aux_layers=(1,)),
        replace(METADATA, language="de"),
        replace(METADATA, perturb=0),
    ],
)
def test_a_cache_of_something_else_is_refused(tmp_path: Path, other: CacheMetadata) -> None:
    cache.create(tmp_path / "other", other)
    assert cache.read_metadata(tmp_path / "other") == other
    cache.create(tmp_path, METADATA)
    cache.create(tmp_path, METADATA)
    with pytest.raises(CacheError, match=r"made from something else \(model tiny, 3 passages"):
        cache.create(tmp_path, other)
    assert cache.read_metadata(tmp_path) == METADATA


@pytest.mark.parametrize("text", [None, "", "[]", "{}", '{"aux_layers": 1}'])
def test_what_is_no_cache_is_said(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "facts.json").write_text(text)
    with pytest.raises(CacheError, match="is no cache of trajectories"):
        cache.read_metadata(tmp_path)


def test_another_format_is_refused(tmp_path: Path) -> None:
    cache.create(tmp_path, METADATA)
    path = tmp_path / "facts.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 9}))
    with pytest.raises(CacheError, match="has format 9, not 1: make it anew"):
        cache.read_metadata(tmp_path)


def test_a_broken_shard_is_named(tmp_path: Path) -> None:
    directory = fill(tmp_path / "cache", passages(tmp_path / "audio", 4))
    entry = next(iter(cache.entries(directory)))
    shard = cache.shard_path(directory, 0)
    shard.write_bytes(shard.read_bytes()[:-100])
    for read in (lambda: cache.read(entry), lambda: list(cache.entries(directory))):
        with pytest.raises(CacheError, match=r"00000.safetensors cannot be read .*delete it"):
            read()


def test_a_full_disk_leaves_no_shard(tmp_path: Path) -> None:
    kept, excluded = decode_passages(teacher(), passages(tmp_path / "audio", 4), "en")
    with small_files(4096), pytest.raises(OSError, match=r"00000\.safetensors cannot be written"):
        cache.write_shard(cache.shard_path(tmp_path, 0), kept, excluded)
    assert [path.name for path in tmp_path.iterdir()] == ["audio"]


def test_exclusions_of_all_shards_are_summed(tmp_path: Path) -> None:
    for number in range(2):
        path = cache.shard_path(tmp_path, number)
        cache.write_shard(path, [], Counter({"unreadable": 1 + number}))
    assert cache.excluded(tmp_path) == {"unreadable": 3}
    assert list(cache.entries(tmp_path)) == []
