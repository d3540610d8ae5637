"""The training loop, from caches to checkpoints and the best network; it resumes at any step.

Every draw is a function of (seed, step), so that a resumed run equals an uninterrupted one.
"""

import json
import logging
import pickle
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import DistributedDataParallelKwargs
from torch import Tensor
from torch.utils.data import DataLoader
from tqdm import tqdm

from model.checkpoints.load import Checkpoint
from model.drafting.drafter_files import save_network, stored_fields
from model.training.data import cache
from model.training.data.cache import CacheError
from model.training.data.files import replace_text, replacing
from model.training.data.packing import Batch, lookup_of
from model.training.data.trajectories import TrainingBatches, TrajectorySplits, draft_vocabulary
from model.training.evaluate import walk_all
from model.training.recipe import Recipe
from model.training.score import Score
from model.training.student import learning_rate
from model.training.students import untrained_student

_LOADERS = 4  # processes that read ahead for a GPU

logger = logging.getLogger(__name__)


class Stopped(Exception):  # noqa: N818  (nothing went wrong)
    """Training was asked to stop, and has written a checkpoint."""


class Trainer:
    """One training run in a directory: `run` begins it, or resumes from its last checkpoint.

    The directory gets run.json, checkpoint.pt, vocabulary.json, curve.json, and best.safetensors: the
    network with the best validation so far. Raises CacheError for caches of another target or with too
    little data, and for a directory with another run.
    """

    def __init__(
        self, checkpoint: Checkpoint, caches: Sequence[Path], recipe: Recipe, directory: Path
    ) -> None:
        self._checkpoint, self._recipe, self._directory = checkpoint, recipe, directory
        self.splits = TrajectorySplits(caches, recipe)
        if self.splits.metadata.target != checkpoint.fingerprint:
            raise CacheError(
                f"the caches were made for {self.splits.metadata.model}, not for {checkpoint.name}"
            )
        directory.mkdir(parents=True, exist_ok=True)
        self._check_run(caches)
        self._accelerator = Accelerator(
            mixed_precision="bf16",
            cpu=not torch.cuda.is_available(),
            # Buffers are frozen, equal in all processes, and large.
            kwargs_handlers=[DistributedDataParallelKwargs(broadcast_buffers=False)],
        )
        self._device = self._accelerator.device
        with self._accelerator.main_process_first():
            vocabulary = self._vocabulary()
        self._lookup = lookup_of(vocabulary, checkpoint.config.vocab_size)
        torch.manual_seed(recipe.seed)
        self._student = untrained_student(recipe, checkpoint, vocabulary)
        self._history: list[dict[str, float]] = []
        self._best = -1.0
        self._done = 0
        # Sum and number of the losses since the last validation.
        self._losses = torch.zeros((), device=self._device)
        self._loss_count = 0

    def _check_run(self, caches: Sequence[Path]) -> None:
        """Write run.json, or compare with it. Raises CacheError for a directory with another run."""
        described = {
            "recipe": stored_fields(self._recipe),
            "target": self._checkpoint.fingerprint,
            "passages": [cache.read_metadata(directory).listing for directory in caches],
        }
        path = self._directory / "run.json"
        wanted = json.loads(json.dumps(described))
        if path.exists() and (known := json.loads(path.read_text(encoding="utf-8"))) != wanted:
            differ = ", ".join(key for key in wanted if known.get(key) != wanted[key])
            raise CacheError(
                f"{self._directory} holds a run of another {differ}: name another directory, or "
                f"delete it. That one's recipe was {known.get('recipe')}"
            )
        replace_text(path, json.dumps(described, indent=1))

    def _vocabulary(self) -> tuple[int, ...] | None:
        """The draft vocabulary, chosen once for a run, because caches may grow."""
        path = self._directory / "vocabulary.json"
        if not path.exists():
            chosen = draft_vocabulary(self.splits.counts(), self._recipe.coverage)
            replace_text(path, json.dumps(chosen))
        known = json.loads(path.read_text(encoding="utf-8"))
        return None if known is None else tuple(known)

    def run(self, stopping: Callable[[], bool] = lambda: False) -> Score:
        """Train to the end; returns the last step's validation score.

        stopping: called after every step; once it is true in any process, a checkpoint is written and
        Stopped raised. Raises CacheError for a broken checkpoint, OSError when the disk is full.
        """
        recipe, accelerator = self._recipe, self._accelerator
        student, optimizer = accelerator.prepare(self._student, self._new_optimizer())
        self._restore(optimizer)
        score = None if self._done else self._validate()
        remaining = range(self._done, recipe.steps)
        progress = tqdm(
            self._batches(remaining),
            initial=self._done,
            total=recipe.steps,
            unit="step",
            smoothing=0.02,
            disable=not accelerator.is_main_process,
        )
        for step, batch in zip(remaining, progress, strict=True):
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(step, recipe.steps, recipe.peak, recipe.warm_up)
            self._train_step(student, optimizer, batch.to(self._device))
            self._done = step + 1
            last = self._done == recipe.steps
            due = last or self._done % recipe.validate_every == 0
            stop = self._stop_requested(stopping) and not last
            if due:
                score = self._validate()
                progress.set_postfix(tau=f"{score.tau:.3f}")
            if due or stop:
                self._save(optimizer)
            if stop:
                accelerator.wait_for_everyone()
                raise Stopped(f"stopped after {self._done} of {recipe.steps} steps")
        return score or self._score()

    def _new_optimizer(self) -> torch.optim.AdamW:
        return torch.optim.AdamW(
            [p for p in self._student.parameters() if p.requires_grad],
            lr=self._recipe.peak,
            weight_decay=self._recipe.weight_decay,
            betas=(0.9, 0.95),
            fused=True,
        )

    def _batches(self, remaining: range) -> Iterable[Batch]:
        accelerator = self._accelerator
        rank, world = accelerator.process_index, accelerator.num_processes
        batches = TrainingBatches(self.splits, self._recipe, self._lookup, rank, world)
        loaders = _LOADERS if self._device.type == "cuda" else 0
        return DataLoader(batches, batch_size=None, sampler=remaining, num_workers=loaders)

    def _train_step(self, student: Any, optimizer: Any, batch: Batch) -> None:
        with self._accelerator.autocast():
            loss: Tensor = student(batch)
        self._accelerator.backward(loss)
        self._accelerator.clip_grad_norm_(student.parameters(), self._recipe.clip)
        optimizer.step()
        optimizer.zero_grad()
        self._losses += loss.detach()
        self._loss_count += 1

    def _stop_requested(self, stopping: Callable[[], bool]) -> bool:
        if stopping():
            self._accelerator.set_trigger()
        return bool(self._accelerator.check_trigger())

    def _score(self) -> Score:
        """Walk the validation trajectories."""
        with self._accelerator.autocast():
            return walk_all(
                self._student,
                map(cache.read, self.splits.validation),
                kept=self.splits.metadata.aux_layers,
                lookup=self._lookup,
                device=self._device,
            )

    def _validate(self) -> Score:
        """Record the validation score; export the network if it is the best so far."""
        score = self._score()
        figures = {"step": self._done, "tau": score.tau, "alpha": score.alpha}
        if self._loss_count:
            figures["loss"] = float(self._losses) / self._loss_count
        self._losses.zero_()
        self._loss_count = 0
        self._history.append(figures)
        if self._accelerator.is_main_process:
            replace_text(self._directory / "curve.json", json.dumps(self._history, indent=1))
            logger.info("step %d: tau %.3f, alpha %.3f", self._done, score.tau, score.alpha)
            if score.tau > self._best:
                self._best = score.tau
                self._export(score)
        return score

    def _export(self, score: Score) -> None:
        with replacing(self._directory / "best.safetensors") as temporary:
            save_network(
                temporary,
                self._student.network,
                target=self._checkpoint.fingerprint,
                acceptance=score.acceptance(self._student.network.architecture.block),
                notes={"recipe": json.dumps(stored_fields(self._recipe)), "step": str(self._done)},
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
                    "counted": self._loss_count,
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
        self._losses, self._loss_count = saved.get("losses", self._losses), saved.get("counted", 0)
