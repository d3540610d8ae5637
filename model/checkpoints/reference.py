"""A checkpoint in transformers' own model: the reference of tests and benchmarks."""

from torch import Tensor
from transformers import GenerationConfig, WhisperForConditionalGeneration

from model.checkpoints.load import Checkpoint


def as_transformers(checkpoint: Checkpoint) -> WhisperForConditionalGeneration:
    """The checkpoint in transformers' model, with the same token rules, float32, eager."""
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
        generation.task_to_id = {"transcribe": tokens.transcribe, "translate": tokens.translate}
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
            attention = "self_attn" if letters == "qkv" else "encoder_attn"
            layer = stem.rsplit(".", 2)[0]
            for letter, part in zip(letters, tensor.chunk(len(letters)), strict=True):
                if (letter, kind) == ("k", "bias"):
                    assert not part.any(), "Whisper's keys have no bias"
                else:
                    result[f"model.{layer}.{attention}.{letter}_proj.{kind}"] = part
            continue
        for ours, theirs in renamed:
            key = key.replace(ours, theirs)  # noqa: PLW2901  (one rename after another)
        result[f"model.{key}"] = tensor
    return result
