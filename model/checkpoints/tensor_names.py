"""Other projects' tensor names mapped to ours, strictly: nothing missing, nothing left over.

Our names are those of `model.whisper.network.Whisper`, where q, k and v of one attention are one product.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from transformers import WhisperConfig

# A rule makes one of our tensors: the stored names, and the function of those tensors.
Rule = tuple[tuple[str, ...], Callable[..., Tensor]]


def apply_rules(variables: dict[str, Tensor], rules: dict[str, Rule]) -> dict[str, Tensor]:
    """Apply `rules` to all of `variables`. Raises ValueError that lists missing and unknown tensors."""
    wanted = {stored for names, _ in rules.values() for stored in names}
    missing, unknown = sorted(wanted - variables.keys()), sorted(variables.keys() - wanted)
    if missing or unknown:
        raise ValueError(f"missing tensors {missing[:8]}, unknown tensors {unknown[:8]}")
    return {name: make(*(variables[key] for key in names)) for name, (names, make) in rules.items()}


def _same(tensor: Tensor) -> Tensor:
    return tensor


def _stack(*tensors: Tensor) -> Tensor:
    return torch.cat(tensors)


def _stack_around_zeros(query: Tensor, value: Tensor) -> Tensor:
    # Whisper's key projections have no bias.
    return torch.cat((query, torch.zeros_like(query), value))


def _after_zeros(value: Tensor) -> Tensor:
    return torch.cat((torch.zeros_like(value), value))


def transformers_names(config: WhisperConfig) -> dict[str, Rule]:
    """The rules for transformers' tensors."""
    rules: dict[str, Rule] = {
        "encoder.positions": (("encoder.embed_positions.weight",), _same),
        "decoder.positions": (("decoder.embed_positions.weight",), _same),
        "decoder.embedding.weight": (("decoder.embed_tokens.weight",), _same),
    }
    pairs = [("encoder.conv1", "encoder.conv1"), ("encoder.conv2", "encoder.conv2")]
    pairs += [("encoder.norm", "encoder.layer_norm"), ("decoder.norm", "decoder.layer_norm")]
    for part, layers in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        for index in range(layers):
            layer = f"{part}.layers.{index}"
            pairs += [
                (f"{layer}.attention_norm", f"{layer}.self_attn_layer_norm"),
                (f"{layer}.attention.out", f"{layer}.self_attn.out_proj"),
                (f"{layer}.mlp_norm", f"{layer}.final_layer_norm"),
                (f"{layer}.mlp_in", f"{layer}.fc1"),
                (f"{layer}.mlp_out", f"{layer}.fc2"),
            ]
            q, k, v = (f"{layer}.self_attn.{letter}_proj" for letter in "qkv")
            matrices = (f"{q}.weight", f"{k}.weight", f"{v}.weight")
            rules[f"{layer}.attention.qkv.weight"] = (matrices, _stack)
            rules[f"{layer}.attention.qkv.bias"] = ((f"{q}.bias", f"{v}.bias"), _stack_around_zeros)
            if part == "decoder":
                pairs += [
                    (f"{layer}.cross_norm", f"{layer}.encoder_attn_layer_norm"),
                    (f"{layer}.cross.q", f"{layer}.encoder_attn.q_proj"),
                    (f"{layer}.cross.out", f"{layer}.encoder_attn.out_proj"),
                ]
                k, v = (f"{layer}.encoder_attn.{letter}_proj" for letter in "kv")
                rules[f"{layer}.cross.kv.weight"] = ((f"{k}.weight", f"{v}.weight"), _stack)
                rules[f"{layer}.cross.kv.bias"] = ((f"{v}.bias",), _after_zeros)
    for ours, theirs in pairs:
        rules[f"{ours}.weight"] = ((f"{theirs}.weight",), _same)
        rules[f"{ours}.bias"] = ((f"{theirs}.bias",), _same)
    return rules


def ctranslate2_names(variables: dict[str, Tensor]) -> dict[str, Rule]:
    """The rules for CTranslate2's tensors; it packs q, k and v as we do."""
    rules: dict[str, Rule] = {
        "encoder.positions": (("encoder/position_encodings/encodings",), _same),
        "decoder.positions": (("decoder/position_encodings/encodings",), _same),
        "decoder.embedding.weight": (("decoder/embeddings/weight",), _same),
    }
    for ours, theirs, weight, bias in _ctranslate2_pairs(variables):
        rules[f"{ours}.weight"] = ((f"{theirs}/{weight}",), _same)
        rules[f"{ours}.bias"] = ((f"{theirs}/{bias}",), _same)
    return rules


def _ctranslate2_pairs(variables: dict[str, Tensor]) -> Iterator[tuple[str, str, str, str]]:
    linear, norm = ("weight", "bias"), ("gamma", "beta")
    yield "encoder.conv1", "encoder/conv1", *linear
    yield "encoder.conv2", "encoder/conv2", *linear
    for part in ("encoder", "decoder"):
        yield f"{part}.norm", f"{part}/layer_norm", *norm
        layers = {key.split("/")[1] for key in variables if key.startswith(f"{part}/layer_")}
        for index in range(len(layers - {"layer_norm"})):
            ours, theirs = f"{part}.layers.{index}", f"{part}/layer_{index}"
            yield f"{ours}.attention_norm", f"{theirs}/self_attention/layer_norm", *norm
            yield f"{ours}.attention.qkv", f"{theirs}/self_attention/linear_0", *linear
            yield f"{ours}.attention.out", f"{theirs}/self_attention/linear_1", *linear
            if part == "decoder":
                yield f"{ours}.cross_norm", f"{theirs}/attention/layer_norm", *norm
                yield f"{ours}.cross.q", f"{theirs}/attention/linear_0", *linear
                yield f"{ours}.cross.kv", f"{theirs}/attention/linear_1", *linear
                yield f"{ours}.cross.out", f"{theirs}/attention/linear_2", *linear
            yield f"{ours}.mlp_norm", f"{theirs}/ffn/layer_norm", *norm
            yield f"{ours}.mlp_in", f"{theirs}/ffn/linear_0", *linear
            yield f"{ours}.mlp_out", f"{theirs}/ffn/linear_1", *linear


def count_layers(weights: dict[str, Tensor], part: str) -> int:
    """The number of layers of `part`, "encoder" or "decoder", in weights under our names."""
    return len({key.split(".")[2] for key in weights if key.startswith(f"{part}.layers.")})
