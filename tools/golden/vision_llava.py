# SPDX-License-Identifier: Apache-2.0
"""A tiny LLaVA-1.5: the tower of CLIP, two products, a llama.

As llama.cpp's older tools write it, from which most published files are: use_gelu false and no use_silu, which means
x * sigmoid(1.702 x) in the tower; `clip.vision.feature_layer` blocks, of which block_count is the number; v.class_embd, the
first row, which has position 0 and is left out of what the projector gets; v.pre_ln before the blocks and no v.post_ln; and
fc1 of each feed-forward under the name ffn_down, fc2 under ffn_up, to be told by their shapes.

    clip.vision.image_aspect_ratio     pad: pictures are padded to a square with the mean colour (int(255 * mean), half of the
                                       excess, rounded down, before them) and then resized; absent, as llama.cpp does, they are
                                       resized first
    clip.vision.projector_hidden_act   as in vision_llava_onevision.py
"""

import gguf
from transformers import LlavaConfig, LlavaForConditionalGeneration
from transformers.models.llava.image_processing_pil_llava import LlavaImageProcessorPil

import vision_common as common
from tiny import finish
from tiny_architectures import neighbours
from vision_tokenizer import ByteLevelVocabulary

SIDE, PATCH = 32, 4
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}USER: {{ message['content'] }} {% elif "
    "message['role'] == 'assistant' %}ASSISTANT: {{ message['content'] }}</s>{% else %}{{ message['content'] }} {% endif %}"
    "{% endfor %}{% if add_generation_prompt %}ASSISTANT:{% endif %}"
)


class Llava(common.Family):
    name, seed, picture_mark = "llava", 564, "<image>"
    cases = [
        (["100x40.png"], "What is on the left?"),
        (["64x64.png"], "Which 3 colours?"),
        (["37x23.png", "30x90.png"], "Compare these."),
    ]
    vocabulary = ByteLevelVocabulary("qwen2", ["Ċ Ċ"], ["<s>", "</s>", "<image>"], "<s>", "</s>", TEMPLATE)
    images = LlavaImageProcessorPil(size={"shortest_edge": SIDE}, crop_size={"height": SIDE, "width": SIDE}, do_pad=True)

    def build(self):
        config = LlavaConfig(
            image_token_index=self.vocabulary.id("<image>"),
            image_seq_length=(SIDE // PATCH) ** 2,
            vision_config=dict(model_type="clip_vision_model", hidden_size=48, intermediate_size=96, num_hidden_layers=4,
                               num_attention_heads=3, image_size=SIDE, patch_size=PATCH, projection_dim=48),
            text_config=dict(model_type="llama", hidden_size=48, intermediate_size=96, num_hidden_layers=3,
                             num_attention_heads=3, num_key_value_heads=3, vocab_size=len(self.vocabulary),
                             max_position_embeddings=2048, rms_norm_eps=1e-5, tie_word_embeddings=False,
                             rope_parameters=dict(rope_type="default", rope_theta=10000.0)),
        )  # fmt: skip
        config._attn_implementation = "eager"
        return common.randomise(LlavaForConditionalGeneration(config), self.seed, common.sharper_attention)

    def text_model(self, model):
        return model.model.language_model

    def inputs(self, pictures, text):
        text = text.replace("<image>", "<image>" * (SIDE // PATCH) ** 2)
        inputs = dict(self.vocabulary.tokenizer()(text, return_tensors="pt"))
        inputs.pop("token_type_ids", None)
        inputs["pixel_values"] = self.images(pictures, return_tensors="pt")["pixel_values"]
        plain = self.images(pictures, do_rescale=False, do_normalize=False)["pixel_values"]
        return inputs, self.vocabulary.id("<image>"), [(i, tile.transpose(1, 2, 0)) for i, tile in enumerate(plain)]

    def write_text(self, path, model):
        config = model.config.text_config
        writer = common.text_writer(path, "llama", self.name, config, self.vocabulary, {
            "rope.freq_base": config.rope_parameters["rope_theta"],
            "rope.dimension_count": config.head_dim,
            "vocab_size": config.vocab_size,
        })  # fmt: skip
        tensors = common.text_tensors(model, gguf.MODEL_ARCH.LLAMA, config)
        heads = config.num_attention_heads
        common.add_tensors(writer, ((name, neighbours(v, heads) if ".attn_q." in name or ".attn_k." in name else v)
                                    for name, v in tensors))  # fmt: skip
        finish(writer)

    def write_vision(self, path, model):
        c = model.config.vision_config
        blocks = c.num_hidden_layers + 1 + model.config.vision_feature_layer
        tower = dict(image_size=SIDE, patch_size=PATCH, hidden_size=c.hidden_size, intermediate_size=c.intermediate_size,
                     layers=blocks, heads=c.num_attention_heads, eps=c.layer_norm_eps)  # fmt: skip
        writer = common.vision_writer(
            path, self.name, "mlp", tower, model.config.text_config.hidden_size, list(self.images.image_mean),
            list(self.images.image_std),
            {"has_text_encoder": False, "has_llava_projector": True, "use_gelu": False, "vision.feature_layer": [blocks],
             "vision.image_aspect_ratio": "pad", "vision.projector_hidden_act": model.config.projector_hidden_act},
        )  # fmt: skip

        def tensors():
            swapped = {"ffn_up": "ffn_down", "ffn_down": "ffn_up"}
            for name, values in common.siglip_tensors(model.model.vision_tower):
                layer = int(name.split(".")[2]) if name.startswith("v.blk.") else 0
                if layer < blocks and "post_ln" not in name:
                    part = name.split(".")[-2]
                    yield name.replace(part, swapped.get(part, part)), values
            rest = dict(common.parameters(model.model.vision_tower))
            yield "v.class_embd", rest["embeddings.class_embedding"]
            for kind in ("weight", "bias"):
                yield f"v.pre_ln.{kind}", rest[f"pre_layrnorm.{kind}"]
            for name, values in common.parameters(model.model.multi_modal_projector):
                yield name.replace("linear_1", "mm.0").replace("linear_2", "mm.2"), values

        common.add_tensors(writer, tensors())
        finish(writer)
