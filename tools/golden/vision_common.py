# SPDX-License-Identifier: Apache-2.0
"""What the tiny vision-language models share: random weights, both files, and a run of the reference.

A family is an object with
    name, seed, cases       [(pictures, question)]
    vocabulary              ByteLevelVocabulary or alike, with the chat template
    picture_mark            what the family's own processor replaces by the rows of a picture and their markers
    build()                 the model of transformers, whose weights are replaced here
    text_model(model)       the module that gets embeddings
    inputs(pictures, text)  (what the model is called with, picture token's id, [RGB pixels of every tile])
    write_text(path, model), write_vision(path, model)
"""

import base64
import hashlib

import gguf
import numpy as np
import torch
from jinja2.sandbox import ImmutableSandboxedEnvironment
from PIL import Image

from origin import origin
from tiny import add_keys, begin

GREEDY_TOKENS = 8


def about_one(name):
    """Where the values of a vector lie: those of norms, which alone are called weights, about 1."""
    return 1.0 if name.endswith("weight") else 0.0


def randomise(model, seed, gain=lambda name, weight: 1.0, centre=about_one):
    """Matrices of unit gain times `gain`, vectors about `centre`; halves hold all exactly."""
    random = torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        values = torch.randn(weight.shape, generator=random)
        if weight.ndim == 1:
            values = 0.2 * values + centre(name)
        elif "embed_tokens" in name:
            values *= gain(name, weight)
        elif "pos" in name and "embed" in name:
            values *= 0.5 * gain(name, weight)
        else:
            values *= gain(name, weight) / weight[0].numel() ** 0.5
        weight.data = values.half().float()
    return model.eval()


def hush(model, vocabulary):
    """Keeps control tokens from being answers, in a model whose head is not its embedding; halves still hold all exactly."""
    ids = vocabulary.control_ids()
    head = model.lm_head.weight.data
    head[ids.start : ids.stop] = (head[ids.start : ids.stop] / 4).half().float()
    return model


def sharper_attention(name, weight):
    """Scores of queries and keys spread enough for attention to choose, and patches unlike each other."""
    if "patch_embed" in name:
        return 2.0
    return 1.6 if any(part in name for part in ("q_proj", "k_proj")) else 1.0


class Recorder:
    """Keeps what the text model was called with."""

    def __init__(self, module):
        self.seen = {}
        self.hook = module.register_forward_pre_hook(self.keep, with_kwargs=True)

    def keep(self, module, arguments, keywords):
        self.seen = keywords


@torch.no_grad()
def run(family, model, inputs):
    """(logits [T, V], embeddings [T, E], what the text model was called with)"""
    dtype = next(model.parameters()).dtype
    inputs = {k: v.to(dtype) if torch.is_tensor(v) and v.is_floating_point() else v for k, v in inputs.items()}
    recorder = Recorder(family.text_model(model))
    result = model(**inputs, use_cache=False)
    recorder.hook.remove()
    return result.logits[0], recorder.seen["inputs_embeds"][0], recorder.seen


def extended(inputs, token):
    """The inputs with one more token."""
    more = dict(inputs)
    for key, value in (("input_ids", token), ("attention_mask", 1), ("mm_token_type_ids", 0), ("token_type_ids", 0)):
        if key in inputs:
            more[key] = torch.cat([inputs[key], torch.tensor([[value]])], dim=1)
    return more


def greedy(family, model, inputs):
    """(ids, the smallest difference between the best and the second)"""
    ids, margin = [], float("inf")
    for _ in range(GREEDY_TOKENS):
        best = run(family, model, inputs)[0][-1].topk(2)
        margin = min(margin, (best.values[0] - best.values[1]).item())
        ids.append(best.indices[0].item())
        if ids[-1] in family.vocabulary.control_ids():
            raise SystemExit(f"{family.name} answers with a control token, which may end the answer; take another seed.")
        inputs = extended(inputs, ids[-1])
    return ids, margin


def influence(family, model, inputs, last):
    """How much the logits change with the colours of the pictures turned around."""
    turned = {k: -v if k.startswith("pixel_values") else v for k, v in inputs.items()}
    return (run(family, model, turned)[0][-1] - last).std().item()


def encoded(rows):
    return base64.b64encode(np.ascontiguousarray(rows, "<f4").tobytes()).decode()


def tile_facts(tiles):
    """tiles: (index of the picture, RGB [height, width, 3])"""
    for picture, pixels in tiles:
        if not np.array_equal(pixels, pixels.astype(np.uint8)):
            raise SystemExit("A tile has pixels that are no bytes.")
        digest = hashlib.sha256(np.ascontiguousarray(pixels, np.uint8).tobytes()).hexdigest()
        yield {"picture": picture, "width": pixels.shape[1], "height": pixels.shape[0], "sha256": digest}


def expected_case(family, model, data, names, question):
    """Expected values of one prompt."""
    pictures = [Image.open(data / "vision" / name).convert("RGB") for name in names]
    text = family.prompt(question, len(pictures))
    inputs, picture_token, tiles = family.inputs(pictures, text)
    single = run(family, model.float(), inputs)
    exact = run(family, model.double(), inputs)
    ids = inputs["input_ids"][0]
    is_picture = ids == picture_token
    pairs = (single[0][-1], exact[0][-1]), (single[1], exact[1])
    difference = max((a.double() - b).abs().max().item() for a, b in pairs)
    rows = family.rows(exact[1][is_picture], exact[2])
    answer, margin = greedy(family, model, inputs)
    result = {
        "pictures": [f"tests/data/vision/{name}" for name in names],
        "question": question,
        "tiles": list(tile_facts(tiles)),
        "ids": torch.where(is_picture, -1, ids).tolist(),
    }
    positions = family.positions(exact[2])
    if positions is not None:
        result["positions"] = positions
    result |= {
        "row_count": int(is_picture.sum()),
        "row_width": rows.shape[1],
        "rows": encoded(rows),
        "max_abs_float32": difference,
        "last_logits": [round(v, 6) for v in exact[0][-1].tolist()],
        "greedy": answer,
        "greedy_margin": round(margin, 4),
    }
    seen = influence(family, model, inputs, exact[0][-1])
    print(
        f"  {len(ids)} tokens, {len(rows)} rows, {len(tiles)} tiles, spread {exact[0][-1].std():.2f}, {seen:.2f} of it by "
        f"the pictures, rows' spread {rows.std():.2f}, margin {margin:.4f}, float32 differs by {difference:.1e}, "
        f"answer {answer}",
        flush=True,
    )
    return result


class Family:
    """Defaults of what families differ in."""

    def text_name(self):
        return self.name

    def prompt(self, question, pictures):
        """The chat text of one question, with marks of pictures before it."""
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        content = self.picture_mark * pictures + question
        messages = [{"role": "user", "content": content}]
        return environment.from_string(self.vocabulary.template).render(
            messages=messages, add_generation_prompt=True, bos_token=self.vocabulary.bos
        )

    def rows(self, rows, called_with):
        return rows.numpy()

    def positions(self, called_with):
        return None


def expected(family, model, data):
    cases = [expected_case(family, model, data, names, question) for names, question in family.cases]
    return {
        "origin": origin(against_float32=max(c["max_abs_float32"] for c in cases)),
        "model": f"tests/data/vision/tiny-{family.text_name()}.gguf",
        "mmproj": f"tests/data/vision/mmproj-tiny-{family.name}.gguf",
        "cases": cases,
    }


def text_writer(path, arch, name, config, vocabulary, keys):
    """A writer of the text half of a model with what all architectures say."""
    writer = begin(path, arch, name, config, config.max_position_embeddings)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    add_keys(writer, arch, keys)
    vocabulary.write(writer)
    return writer


def vision_writer(path, name, projector_type, config, projection, mean, deviation, keys):
    """A writer of a vision file with what those of all projectors say. config: of the tower."""
    writer = gguf.GGUFWriter(path, "clip")
    writer.add_type(gguf.GGUFType.MMPROJ)
    writer.add_name(f"tiny random {name}")
    writer.add_license("Apache-2.0")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    writer.add_bool("clip.has_vision_encoder", True)
    writer.add_string("clip.projector_type", projector_type)
    writer.add_vision_projection_dim(projection)
    writer.add_vision_image_size(config["image_size"])
    writer.add_vision_patch_size(config["patch_size"])
    writer.add_vision_embedding_length(config["hidden_size"])
    writer.add_vision_feed_forward_length(config["intermediate_size"])
    writer.add_vision_block_count(config["layers"])
    writer.add_vision_head_count(config["heads"])
    writer.add_vision_attention_layernorm_eps(config["eps"])
    writer.add_vision_image_mean(mean)
    writer.add_vision_image_std(deviation)
    add_keys(writer, "clip", keys)
    return writer


def add_tensors(writer, tensors, single=lambda name: False):
    """Halves for what has two axes or more, floats for the rest, for tables of positions and for what `single` picks."""
    for name, values in tensors:
        values = np.asarray(values)
        dtype = np.float32 if values.ndim == 1 or "position_embd" in name or single(name) else np.float16
        writer.add_tensor(name, np.ascontiguousarray(values, dtype))


def parameters(module):
    for name, weight in module.named_parameters():
        yield name, weight.detach().float().numpy()


def text_tensors(model, arch, config):
    """(GGUF name, values) of the text half of a model that has it as model.language_model, with a head of its own or tied."""
    names = gguf.get_tensor_name_map(arch, config.num_hidden_layers)
    for name, values in parameters(model):
        if name.startswith(("model.language_model.", "lm_head.")):
            yield names.get_name(name.replace("language_model.", ""), try_suffixes=(".weight", ".bias")), values


TOWER_PARTS = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.out_proj": "attn_out", "layer_norm1": "ln1", "layer_norm2": "ln2", "mlp.fc1": "ffn_up",
    "mlp.fc2": "ffn_down",
}  # fmt: skip


def siglip_tensors(tower):
    """(GGUF name, values) of a SigLIP tower."""
    fixed = {"embeddings.patch_embedding": "v.patch_embd", "embeddings.position_embedding": "v.position_embd",
             "post_layernorm": "v.post_ln"}
    for name, values in parameters(tower):
        part, kind = name.rsplit(".", 1)
        if part.startswith("encoder.layers."):
            _, _, layer, inner = part.split(".", 3)
            yield f"v.blk.{layer}.{TOWER_PARTS[inner]}.{kind}", values
        elif part in fixed:
            yield f"{fixed[part]}.{kind}", values
