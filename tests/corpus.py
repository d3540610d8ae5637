"""Whisper as transformers computes it, for comparison."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import (
    GenerationConfig,
    WhisperFeatureExtractor,
    WhisperForConditionalGeneration,
)

from model.load import Checkpoint
from model.mel import SAMPLE_RATE


def as_transformers(checkpoint: Checkpoint) -> WhisperForConditionalGeneration:
    """The same weights in transformers' own model, with the same token rules, float32, eager."""
    model = WhisperForConditionalGeneration(checkpoint.config)
    model.load_state_dict(_transformers_weights(checkpoint.weights), strict=False)
    tokens = checkpoint.tokens
    generation = GenerationConfig(
        decoder_start_token_id=tokens.sot,
        eos_token_id=tokens.eot,
        pad_token_id=tokens.eot,
        no_timestamps_token_id=tokens.no_timestamps,
        suppress_tokens=list(tokens.suppressed),
        begin_suppress_tokens=list(tokens.suppressed_first),
        max_length=checkpoint.config.max_target_positions,
        is_multilingual=bool(tokens.languages),
    )
    if tokens.languages:
        generation.lang_to_id = {f"<|{code}|>": n for code, n in tokens.languages.items()}
        generation.task_to_id = {
            "transcribe": tokens.transcribe,
            "translate": tokens.translate,
        }
    model.generation_config = generation
    return model.eval().requires_grad_(requires_grad=False)


def _transformers_weights(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Our names and fused products back to transformers' names."""
    renamed = (
        (".attention_norm.", ".self_attn_layer_norm."),
        (".attention.out.", ".self_attn.out_proj."),
        (".cross_norm.", ".encoder_attn_layer_norm."),
        (".cross.q.", ".encoder_attn.q_proj."),
        (".cross.out.", ".encoder_attn.out_proj."),
        (".mlp_norm.", ".final_layer_norm."),
        (".mlp_in.", ".fc1."),
        (".mlp_out.", ".fc2."),
        ("coder.norm.", "coder.layer_norm."),
        ("coder.positions", "coder.embed_positions.weight"),
        ("decoder.embedding.", "decoder.embed_tokens."),
    )
    result = {"proj_out.weight": weights["decoder.embedding.weight"].float()}
    for key, stored in weights.items():
        tensor = stored.float()
        stem, kind = key.rsplit(".", 1)
        if stem.endswith((".qkv", ".kv")):
            letters = stem.rsplit(".", 1)[1]
            room = "self_attn" if letters == "qkv" else "encoder_attn"
            layer = stem.rsplit(".", 2)[0]
            for letter, part in zip(letters, tensor.chunk(len(letters)), strict=True):
                if (letter, kind) == ("k", "bias"):
                    assert not part.any(), "Whisper's keys have no bias"
                else:
                    result[f"model.{layer}.{room}.{letter}_proj.{kind}"] = part
            continue
        for ours, theirs in renamed:
            key = key.replace(ours, theirs)  # noqa: PLW2901  (one rename after another)
        result[f"model.{key}"] = tensor
    return result


def opened_like(checkpoint: Checkpoint) -> Tensor:
    """The opening of an English transcription, as `generate` takes it: [1, n]."""
    return torch.tensor([checkpoint.tokens.opening([], "en", "transcribe")])


def greedy_reference(
    checkpoint: Checkpoint, reference: WhisperForConditionalGeneration, audio: NDArray[np.float32]
) -> tuple[tuple[int, ...], list[Tensor]]:
    """Tokens of transformers' own greedy `generate` with its own features, and each step's scores.

    English, no timestamps, and the engine's budget of half the context.
    """
    extractor = WhisperFeatureExtractor(feature_size=checkpoint.config.num_mel_bins)
    features = extractor(audio, sampling_rate=SAMPLE_RATE, return_tensors="pt").input_features
    opening = opened_like(checkpoint)
    generated = reference.generate(
        features,
        decoder_input_ids=opening,
        max_new_tokens=checkpoint.config.max_target_positions // 2,
        return_dict_in_generate=True,
        output_scores=True,
    )
    # Only this form of the answer keeps the opening in front.
    sequence = generated.sequences[0].tolist()
    assert sequence[: opening.shape[1]] == opening[0].tolist()
    return tuple(sequence[opening.shape[1] :]), list(generated.scores)
