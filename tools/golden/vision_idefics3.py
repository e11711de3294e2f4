# SPDX-License-Identifier: Apache-2.0
"""A tiny Idefics3 / SmolVLM: pictures in tiles, pixel shuffle, a llama.

Pictures are resized so that the longer side is `clip.vision.preproc_image_size`, then up to whole tiles of
`clip.vision.image_size`, and cut; a last tile is the whole picture, squashed. Where the resized picture fits one tile it
is the only one (the published sizes never do). All resizing is Lanczos. Rows of tiles are lines of text:

    <fake_token_around_image><row_1_col_1> rows <fake_token_around_image><row_1_col_2> rows "\\n" ... "\\n"
    <fake_token_around_image><global-img> rows <fake_token_around_image>

so two line ends stand before the last tile, which vocabularies have as one token. The published chat template has no
space between "User:" and a picture but one between "User:" and text; the one here never has.
"""

import gguf
from transformers import Idefics3Config, Idefics3ForConditionalGeneration
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
from transformers.models.idefics3.processing_idefics3 import Idefics3Processor

import vision_common as common
from tiny import finish
from tiny_architectures import neighbours
from vision_tokenizer import ByteLevelVocabulary

SIDE, PATCH, LONGEST, SCALE = 32, 4, 96, 2
TEMPLATE = (
    "<|im_start|>{% for message in messages %}{{ message['role'] | capitalize }}:{{ message['content'] }}"
    "<end_of_utterance>\n{% endfor %}{% if add_generation_prompt %}Assistant:{% endif %}"
)
MARKS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<fake_token_around_image>", "<image>", "<end_of_utterance>",
         "<global-img>"] + [f"<row_{r}_col_{c}>" for r in range(1, 7) for c in range(1, 7)]  # fmt: skip


class Idefics3(common.Family):
    name, seed, picture_mark = "idefics3", 508, "<image>"
    cases = [
        (["100x40.png"], "What is on the left?"),
        (["64x64.png"], "Which 3 colours?\n\nName them."),
        (["37x23.png", "30x90.png"], "Compare these."),
        (["1x1.png"], "Is it dark?"),
    ]
    vocabulary = ByteLevelVocabulary("smollm", ["Ċ Ċ"], MARKS, "<|im_start|>", "<end_of_utterance>", TEMPLATE)

    def __init__(self):
        self.images = Idefics3ImageProcessorPil(size={"longest_edge": LONGEST}, max_image_size={"longest_edge": SIDE})
        self.processor = Idefics3Processor(
            self.images, self.vocabulary.tokenizer(), image_seq_len=(SIDE // PATCH // SCALE) ** 2
        )

    def build(self):
        config = Idefics3Config(
            image_token_id=self.vocabulary.id("<image>"),
            scale_factor=SCALE,
            tie_word_embeddings=False,
            vision_config=dict(hidden_size=48, intermediate_size=96, num_hidden_layers=3, num_attention_heads=3,
                               image_size=SIDE, patch_size=PATCH),
            text_config=dict(model_type="llama", hidden_size=48, intermediate_size=96, num_hidden_layers=3,
                             num_attention_heads=3, num_key_value_heads=1, vocab_size=len(self.vocabulary),
                             max_position_embeddings=2048, rms_norm_eps=1e-5, pad_token_id=self.vocabulary.id("<|im_end|>"),
                             bos_token_id=self.vocabulary.id("<|im_start|>"),
                             eos_token_id=self.vocabulary.id("<end_of_utterance>"),
                             rope_parameters=dict(rope_type="default", rope_theta=100000.0), tie_word_embeddings=False),
        )  # fmt: skip
        config._attn_implementation = "eager"
        model = common.randomise(Idefics3ForConditionalGeneration(config), self.seed, common.sharper_attention)
        return common.hush(model, self.vocabulary)

    def text_model(self, model):
        return model.model.text_model

    def inputs(self, pictures, text):
        inputs = dict(self.processor(text=text, images=[pictures], return_tensors="pt"))
        tiles = []
        for index, picture in enumerate(pictures):
            plain = self.images([[picture]], do_rescale=False, do_normalize=False, return_tensors="np")["pixel_values"]
            tiles += [(index, tile.transpose(1, 2, 0)) for tile in plain[0]]
        inputs = {k: inputs[k] for k in ("input_ids", "attention_mask", "pixel_values", "pixel_attention_mask")}
        return inputs, self.vocabulary.id("<image>"), tiles

    def write_text(self, path, model):
        config = model.config.text_config
        writer = common.text_writer(path, "llama", self.name, config, self.vocabulary, {
            "rope.freq_base": config.rope_parameters["rope_theta"],
            "rope.dimension_count": config.head_dim,
            "vocab_size": config.vocab_size,
        })  # fmt: skip
        names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)

        def tensors():
            for name, values in common.parameters(model):
                if ".vision_model." in name or ".connector." in name:
                    continue
                if "q_proj" in name or "k_proj" in name:
                    heads = config.num_attention_heads if "q_proj" in name else config.num_key_value_heads
                    values = neighbours(values, heads)
                yield names.get_name(name.replace("text_model.", ""), try_suffixes=(".weight",)), values

        common.add_tensors(writer, tensors())
        finish(writer)

    def write_vision(self, path, model):
        c = model.config.vision_config
        tower = dict(image_size=SIDE, patch_size=PATCH, hidden_size=c.hidden_size, intermediate_size=c.intermediate_size,
                     layers=c.num_hidden_layers, heads=c.num_attention_heads, eps=c.layer_norm_eps)  # fmt: skip
        writer = common.vision_writer(
            path, self.name, "idefics3", tower, model.config.text_config.hidden_size,
            list(self.images.image_mean), list(self.images.image_std),
            {"vision.projector.scale_factor": SCALE, "use_gelu": True, "vision.preproc_image_size": LONGEST},
        )  # fmt: skip

        def tensors():
            yield from common.siglip_tensors(model.model.vision_model)
            yield "mm.model.fc.weight", model.model.connector.modality_projection.proj.weight.detach().float().numpy()

        common.add_tensors(writer, tensors(), single=lambda name: "_embd." in name)
        finish(writer)
