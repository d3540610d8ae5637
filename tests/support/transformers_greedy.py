"""What transformers itself makes of an utterance, for comparison."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import WhisperFeatureExtractor, WhisperForConditionalGeneration

from model.checkpoints.load import Checkpoint
from model.whisper.mel import SAMPLE_RATE


def prompt_like(checkpoint: Checkpoint) -> Tensor:
    """The prompt tokens of an English transcription, as `generate` takes it: [1, n]."""
    return torch.tensor([checkpoint.tokens.prompt_tokens([], "en", "transcribe")])


def greedy_reference(
    checkpoint: Checkpoint, reference: WhisperForConditionalGeneration, audio: NDArray[np.float32]
) -> tuple[tuple[int, ...], list[Tensor]]:
    """Tokens of transformers' own greedy `generate` with its own features, and each step's scores.

    English, no timestamps, and the engine's limit of half the context.
    """
    extractor = WhisperFeatureExtractor(feature_size=checkpoint.config.num_mel_bins)
    features = extractor(audio, sampling_rate=SAMPLE_RATE, return_tensors="pt").input_features
    prompt_tokens = prompt_like(checkpoint)
    generated = reference.generate(
        features,
        decoder_input_ids=prompt_tokens,
        max_new_tokens=checkpoint.config.max_target_positions // 2,
        return_dict_in_generate=True,
        output_scores=True,
    )
    # Only this form of the answer keeps the prompt tokens in front.
    sequence = generated.sequences[0].tolist()
    assert sequence[: prompt_tokens.shape[1]] == prompt_tokens[0].tolist()
    return tuple(sequence[prompt_tokens.shape[1] :]), list(generated.scores)
