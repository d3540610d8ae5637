"""The training loop: caches in, checkpoints and the best network out; stops and goes on at any step.

Every draw is a function of (seed, step), so that a resumed run is the uninterrupted one.
"""

import json
import logging
import pickle
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import DistributedDataParallelKwargs
from torch import Tensor
from torch.utils.data import DataLoader
from tqdm import tqdm

from model.checkpoints.load import Checkpoint
from model.drafting.drafter_files import save_network
from model.training.data import cache
from model.training.data.cache import CacheError
from model.training.data.files import replace_text, replacing
from model.training.data.packing import Batch, lookup_of
from model.training.data.trajectories import Steps, TrajectorySplits, draft_vocabulary
from model.training.evaluate import score
from model.training.recipe import Recipe
from model.training.score import Score
from model.training.student import rate
from model.training.students import fresh

_LOADERS = 4  # processes that read ahead for a GPU

logger = logging.getLogger(__name__)


class Stopped(Exception):  # noqa: N818  (nothing went wrong)
    """Training was asked to stop, and has written a checkpoint."""


class Trainer:
    """One training run in a directory: `run` begins it, or goes on from its last checkpoint.

    The directory gets run.json, checkpoint.pt, vocabulary.json, curve.json, and best.safetensors:
    the network of the best validation so far. Raises CacheError for caches of another target or that
    hold too little, and for a directory that holds a run of other things.
    """

    def __init__(
        self, checkpoint: Checkpoint, caches: Sequence[Path], recipe: Recipe, directory: Path
    ) -> None:
        self._checkpoint, self._recipe, self._directory = checkpoint, recipe, directory
        self.splits = TrajectorySplits(caches, recipe)
        if self.splits.facts.target != checkpoint.fingerprint:
            raise CacheError(
                f"the caches were made for {self.splits.facts.model}, not for {checkpoint.name}"
            )
        directory.mkdir(parents=True, exist_ok=True)
        self._belong(caches)
        self._accelerator = Accelerator(
            mixed_precision="bf16",
            cpu=not torch.cuda.is_available(),
            # What is not trained is the same everywhere, and large.
            kwargs_handlers=[DistributedDataParallelKwargs(broadcast_buffers=False)],
        )
        self._device = self._accelerator.device
        with self._accelerator.main_process_first():
            vocabulary = self._vocabulary()
        self._lookup = lookup_of(vocabulary, checkpoint.config.vocab_size)
        torch.manual_seed(recipe.seed)
        self._student = fresh(recipe, checkpoint, vocabulary)
        self._history: list[dict[str, float]] = []
        self._best = -1.0
        self._done = 0
        # Of the losses since the last validation: their sum, and how many.
        self._losses = torch.zeros((), device=self._device)
        self._counted = 0

    def _belong(self, caches: Sequence[Path]) -> None:
        """Raises CacheError where the directory holds a run of other things than these."""
        told = {
            "recipe": asdict(self._recipe),
            "target": self._checkpoint.fingerprint,
            "passages": [cache.read_metadata(directory).listing for directory in caches],
        }
        path = self._directory / "run.json"
        wanted = json.loads(json.dumps(told))
        if path.exists() and (known := json.loads(path.read_text(encoding="utf-8"))) != wanted:
            differ = ", ".join(key for key in wanted if known.get(key) != wanted[key])
            raise CacheError(
                f"{self._directory} holds a run of another {differ}: name another directory, or "
                f"delete it. That one's recipe was {known.get('recipe')}"
            )
        replace_text(path, json.dumps(told, indent=1))

    def _vocabulary(self) -> tuple[int, ...] | None:
        """Chosen once for a run: a cache may have grown since it began."""
        path = self._directory / "vocabulary.json"
        if not path.exists():
            chosen = draft_vocabulary(self.splits.counts(), self._recipe.coverage)
            replace_text(path, json.dumps(chosen))
        known = json.loads(path.read_text(encoding="utf-8"))
        return None if known is None else tuple(known)

    def run(self, stopping: Callable[[], bool] = lambda: False) -> Score:
        """Train to the end; the last step's score on validation.

        stopping: asked after every step; where it is true in any process, Stopped is raised once a
        checkpoint is written. Raises CacheError for a broken checkpoint, OSError when the disk is full.
        """
        recipe, accelerator = self._recipe, self._accelerator
        student, optimizer = accelerator.prepare(self._student, self._new_optimizer())
        self._restore(optimizer)
        now = None if self._done else self._validate()
        left = range(self._done, recipe.steps)
        progress = tqdm(
            self._batches(left),
            initial=self._done,
            total=recipe.steps,
            unit="step",
            smoothing=0.02,
            disable=not accelerator.is_main_process,
        )
        for step, batch in zip(left, progress, strict=True):
            for group in optimizer.param_groups:
                group["lr"] = rate(step, recipe.steps, recipe.peak, recipe.warm_up)
            self._learn(student, optimizer, batch.to(self._device))
            self._done = step + 1
            last = self._done == recipe.steps
            due = last or self._done % recipe.validate_every == 0
            stop = self._asked(stopping) and not last
            if due:
                now = self._validate()
                progress.set_postfix(tau=f"{now.tau:.3f}")
            if due or stop:
                self._save(optimizer)
            if stop:
                accelerator.wait_for_everyone()
                raise Stopped(f"stopped after {self._done} of {recipe.steps} steps")
        return now or self._score()

    def _new_optimizer(self) -> torch.optim.AdamW:
        return torch.optim.AdamW(
            [p for p in self._student.parameters() if p.requires_grad],
            lr=self._recipe.peak,
            weight_decay=self._recipe.weight_decay,
            betas=(0.9, 0.95),
            fused=True,
        )

    def _batches(self, left: range) -> Iterable[Batch]:
        accelerator = self._accelerator
        rank, world = accelerator.process_index, accelerator.num_processes
        steps = Steps(self.splits, self._recipe, self._lookup, rank, world)
        loaders = _LOADERS if self._device.type == "cuda" else 0
        return DataLoader(steps, batch_size=None, sampler=left, num_workers=loaders)

    def _learn(self, student: Any, optimizer: Any, batch: Batch) -> None:
        with self._accelerator.autocast():
            loss: Tensor = student(batch)
        self._accelerator.backward(loss)
        self._accelerator.clip_grad_norm_(student.parameters(), self._recipe.clip)
        optimizer.step()
        optimizer.zero_grad()
        self._losses += loss.detach()
        self._counted += 1

    def _asked(self, stopping: Callable[[], bool]) -> bool:
        if stopping():
            self._accelerator.set_trigger()
        return bool(self._accelerator.check_trigger())

    def _score(self) -> Score:
        """Walk the validation audio."""
        with self._accelerator.autocast():
            return score(
                self._student,
                map(cache.read, self.splits.validation),
                kept=self.splits.facts.aux_layers,
                lookup=self._lookup,
                device=self._device,
            )

    def _validate(self) -> Score:
        """Note what the validation audio says; keep the network if it is the best so far."""
        now = self._score()
        facts = {"step": self._done, "tau": now.tau, "alpha": now.alpha}
        if self._counted:
            facts["loss"] = float(self._losses) / self._counted
        self._losses.zero_()
        self._counted = 0
        self._history.append(facts)
        if self._accelerator.is_main_process:
            replace_text(self._directory / "curve.json", json.dumps(self._history, indent=1))
            logger.info("step %d: tau %.3f, alpha %.3f", self._done, now.tau, now.alpha)
            if now.tau > self._best:
                self._best = now.tau
                self._export(now)
        return now

    def _export(self, now: Score) -> None:
        with replacing(self._directory / "best.safetensors") as temporary:
            save_network(
                temporary,
                self._student.network,
                target=self._checkpoint.fingerprint,
                acceptance=now.acceptance(self._student.network.architecture.block),
                notes={"recipe": json.dumps(asdict(self._recipe)), "step": str(self._done)},
            )

    def _save(self, optimizer: Any) -> None:
        if not self._accelerator.is_main_process:
            return
        with replacing(self._directory / "checkpoint.pt") as temporary:
            torch.save(
                {
                    "done": self._done,
                    "best": self._best,
                    "history": self._history,
                    "losses": self._losses,
                    "counted": self._counted,
                    "network": self._student.network.state_dict(),
                    "optimizer": optimizer.state_dict(),
                },
                temporary,
            )

    def _restore(self, optimizer: Any) -> None:
        path = self._directory / "checkpoint.pt"
        if not path.exists():
            return
        try:
            saved = torch.load(path, map_location=self._device, weights_only=True)
        except (OSError, EOFError, RuntimeError, pickle.UnpicklingError) as error:
            kind = type(error).__name__
            raise CacheError(f"the checkpoint {path} cannot be read ({kind}): delete it") from None
        self._student.network.load_state_dict(saved["network"])
        optimizer.load_state_dict(saved["optimizer"])
        self._done, self._best, self._history = saved["done"], saved["best"], saved["history"]
        self._losses, self._counted = saved.get("losses", self._losses), saved.get("counted", 0)
