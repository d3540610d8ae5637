import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from safetensors import safe_open

from model.checkpoints.load import ModelError
from model.training.data import cache, distil
from model.training.data.cache import CacheError
from model.training.data.corpus import Passage, Recording
from tests.support.lessons import AUX_LAYERS, CPU, passages
from tests.support.python import ROOT
from tests.support.tiny import CHECKPOINT, tiny_checkpoint

# Shards of two; killed in the middle of writing the second one.
KILLED = """
import os, signal, sys
from pathlib import Path
from model.training.data import cache, distil
from tests.support.lessons import CHECKPOINT, CPU, passages

distil.SHARD = 2
save = cache.save_file

def half(tensors, path, metadata):
    save(tensors, path, metadata)
    if path.name.startswith("00001"):
        os.truncate(path, path.stat().st_size // 2)
        os.kill(os.getpid(), signal.SIGKILL)

cache.save_file = half
folder = Path(sys.argv[1])
distil.distil(CHECKPOINT, passages(folder / "audio", 6), folder / "killed", device=CPU)
"""


def shards(directory: Path) -> dict[str, tuple[dict[str, str], dict[str, list[float]]]]:
    """What each shard holds. Their bytes may differ: the header's order is by chance."""
    found = {}
    for path in directory.glob("*.safetensors"):
        with safe_open(path, framework="pt") as file:
            found[path.name] = (
                file.metadata(),
                {
                    name: file.get_tensor(name).tolist()
                    for name in file.keys()  # noqa: SIM118
                },
            )
    return found


@pytest.fixture
def _small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distil, "SHARD", 2)


@pytest.mark.usefixtures("_small_shards")
def test_a_killed_run_goes_on_where_it_was(tmp_path: Path) -> None:
    """No half shard is left to be taken for a whole one, and the end is that of a run unharmed."""
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], cwd=ROOT, check=False)
    assert done.returncode == -signal.SIGKILL
    assert list(shards(tmp_path / "killed")) == ["00000.safetensors"]
    before = (tmp_path / "killed" / "00000.safetensors").stat().st_mtime_ns
    taught = passages(tmp_path / "audio", 6)
    counts = [
        distil.distil(CHECKPOINT, taught, tmp_path / name, device=CPU)
        for name in ("killed", "whole")
    ]
    assert counts[0] == counts[1]
    assert shards(tmp_path / "killed") == shards(tmp_path / "whole")
    assert (tmp_path / "killed" / "00000.safetensors").stat().st_mtime_ns == before


@pytest.mark.usefixtures("_small_shards")
def test_processes_share_the_work(tmp_path: Path) -> None:
    taught = passages(tmp_path / "audio", 5)
    for which in (1, 0):
        distil.distil(CHECKPOINT, taught, tmp_path / "shared", device=CPU, share=(which, 2))
        mine = {f"{number:05d}.safetensors" for number in range(which, 3, 2)}
        assert mine <= shards(tmp_path / "shared").keys()
    distil.distil(CHECKPOINT, taught, tmp_path / "alone", device=CPU)
    assert shards(tmp_path / "shared") == shards(tmp_path / "alone")


def test_what_teaches_nothing_is_counted(tmp_path: Path) -> None:
    """Files that turn out unreadable, and transcripts that run into the limit."""
    taught = passages(tmp_path / "audio", 10)
    taught.append(Passage((Recording("gone", 1.0, "s", "CC0", "x", tmp_path / "gone.wav"),)))
    counts = distil.distil(CHECKPOINT, taught, tmp_path / "cache", device=CPU)
    kept = list(cache.entries(tmp_path / "cache"))
    assert counts["unreadable"] == 1
    assert counts["at the length limit"] > 0
    assert counts.total() + len(kept) == len(taught)
    assert all(cache.read_tokens(one)[-1] == CHECKPOINT.tokens.eot for one in kept)


def test_all_blocks_are_kept_unless_some_are_named(tmp_path: Path) -> None:
    taught = passages(tmp_path / "audio", 2)
    distil.distil(CHECKPOINT, taught, tmp_path / "all", device=CPU)
    assert cache.read_metadata(tmp_path / "all").aux_layers == AUX_LAYERS
    distil.distil(CHECKPOINT, taught, tmp_path / "last", device=CPU, aux_layers=(1,))
    assert cache.read_metadata(tmp_path / "last").aux_layers == (1,)


def test_a_cache_of_another_target_is_refused(tmp_path: Path) -> None:
    taught = passages(tmp_path / "audio", 1)
    distil.distil(CHECKPOINT, taught, tmp_path / "cache", device=CPU)
    with pytest.raises(CacheError, match="made from something else"):
        distil.distil(tiny_checkpoint(seed=5), taught, tmp_path / "cache", device=CPU)


def test_a_language_that_the_target_lacks_leaves_no_cache(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="does not know the language xx"):
        distil.distil(CHECKPOINT, [], tmp_path / "cache", device=CPU, language="xx")
    assert not (tmp_path / "cache").exists()


def test_perturbed_passages_are_another_cache(tmp_path: Path) -> None:
    """The seed is one of its facts; what is kept differs."""
    taught = passages(tmp_path / "audio", 4)
    for seed in (None, 3):
        directory = tmp_path / str(seed)
        assert isinstance(
            distil.distil(CHECKPOINT, taught, directory, device=CPU, seed=seed), Counter
        )
        assert cache.read_metadata(directory).perturb == seed
    with pytest.raises(CacheError, match="made from something else"):
        distil.distil(CHECKPOINT, taught, tmp_path / "3", device=CPU)
    plain, changed = (shards(tmp_path / name)["00000.safetensors"] for name in ("None", "3"))
    assert plain != changed
