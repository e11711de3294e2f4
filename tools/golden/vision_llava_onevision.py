# SPDX-License-Identifier: Apache-2.0
"""A tiny LLaVA-OneVision: a whole view and tiles of any aspect, put together again with line ends between rows, a qwen2.

llama.cpp has no converter for it, and its program joins the tiles as they come; transformers is the reference. The keys are
those of llama.cpp's older tools and the tensors those that its program reads:

    clip.vision.image_grid_pinpoints   pairs of sides of which one is taken: (height, width) in transformers' order, (width,
                                       height) in LLaVA's own; the published sets have each pair both ways round
    clip.vision.mm_patch_merge_type    spatial_unpad
    clip.vision.image_aspect_ratio     anyres_max_N: more than N whole views of patches are shrunk, bilinearly, by the root
                                       of their excess where that is above 1.1; without a number nothing is shrunk
    clip.vision.feature_layer          blocks to run; block_count is the same number, and there is no v.post_ln
    v.image_newline                    the row that ends each line of patches (older files: model.image_newline)

and one key that llama.cpp does not know: clip.vision.projector_hidden_act, `gelu` (by the error function, as the model was
trained) or, where absent, gelu_pytorch_tanh (which llama.cpp computes for every file).

One picture in a prompt: the whole view squashed to image_size, then the tiles of the picture resized and padded with black;
rows are those of the whole view, then the lines. Several pictures: each is padded to a square with the mean colour
(int(255 * mean)), resized, and its rows end with one image_newline. Patches that do not fit into image_size are left out.
The published template writes a line end between pictures and text; here the text follows directly.
"""

import gguf
import numpy as np
from transformers import LlavaOnevisionConfig, LlavaOnevisionForConditionalGeneration
from transformers.models.llava_onevision.image_processing_pil_llava_onevision import LlavaOnevisionImageProcessorPil
from transformers.models.llava_onevision.processing_llava_onevision import LlavaOnevisionProcessor

import vision_common as common
from tiny import finish
from vision_tokenizer import ByteLevelVocabulary

SIDE, PATCH, MOST = 34, 4, 4
PINPOINTS = [[SIDE * rows, SIDE * columns] for rows in range(1, 4) for columns in range(1, 4)]
TEMPLATE = (
    "{% if messages[0]['role'] != 'system' %}<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n{% endif %}"
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
MARKS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<image>", "<video>"]


class LlavaOnevision(common.Family):
    name, seed, picture_mark = "llava_onevision", 520, "<image>"
    cases = [
        (["100x40.png"], "What is on the left?"),
        (["200x150.png"], "Which 3 colours?"),
        (["37x23.png", "30x90.png"], "Compare these."),
        (["5x3.png"], "Is it dark?"),
    ]
    vocabulary = ByteLevelVocabulary("qwen2", ["Ċ Ċ"], MARKS, "<|endoftext|>", "<|im_end|>", TEMPLATE)

    def __init__(self):
        self.images = LlavaOnevisionImageProcessorPil(size={"height": SIDE, "width": SIDE}, image_grid_pinpoints=PINPOINTS,
                                                      image_mean=[0.5] * 3, image_std=[0.5] * 3)  # fmt: skip
        self.processor = LlavaOnevisionProcessor.__new__(LlavaOnevisionProcessor)
        self.processor.image_processor, self.processor.image_token = self.images, self.picture_mark
        self.processor.num_image_tokens = (SIDE // PATCH) ** 2
        self.processor.vision_feature_select_strategy = "full"
        self.processor.vision_aspect_ratio = f"anyres_max_{MOST}"

    def build(self):
        config = LlavaOnevisionConfig(
            image_token_index=self.vocabulary.id("<image>"),
            video_token_index=self.vocabulary.id("<video>"),
            image_grid_pinpoints=PINPOINTS,
            vision_aspect_ratio=f"anyres_max_{MOST}",
            vision_config=dict(model_type="siglip_vision_model", hidden_size=48, intermediate_size=96,
                               num_hidden_layers=3, num_attention_heads=2, image_size=SIDE, patch_size=PATCH,
                               vision_use_head=False),
            text_config=dict(model_type="qwen2", hidden_size=48, intermediate_size=96, num_hidden_layers=3,
                             num_attention_heads=3, num_key_value_heads=1, vocab_size=len(self.vocabulary),
                             max_position_embeddings=4096, rms_norm_eps=1e-6, tie_word_embeddings=False,
                             bos_token_id=self.vocabulary.id("<|endoftext|>"),
                             eos_token_id=self.vocabulary.id("<|im_end|>"),
                             rope_parameters=dict(rope_type="default", rope_theta=1000000.0)),
        )  # fmt: skip
        config._attn_implementation = "eager"
        model = LlavaOnevisionForConditionalGeneration(config)
        return common.randomise(model, self.seed, common.sharper_attention)

    def text_model(self, model):
        return model.model.language_model

    def inputs(self, pictures, text):
        processed = self.images([pictures], return_tensors="pt")
        head, *rest = text.split(self.picture_mark)
        parts = [self.processor.replace_image_token(processed, i) for i in range(len(pictures))]
        text = head + "".join(part + after for part, after in zip(parts, rest))
        ids = self.vocabulary.tokenizer()(text, return_tensors="pt")
        inputs = dict(input_ids=ids["input_ids"], attention_mask=ids["attention_mask"])
        inputs |= {k: processed[k] for k in ("pixel_values", "image_sizes", "batch_num_images")}
        plain = self.images([pictures], do_rescale=False, do_normalize=False, do_pad=False)["pixel_values"]
        tiles = [(i, tile.transpose(1, 2, 0)) for i, tiles in enumerate(plain) for tile in np.asarray(tiles)]
        return inputs, self.vocabulary.id("<image>"), tiles

    def write_text(self, path, model):
        config = model.config.text_config
        writer = common.text_writer(path, "qwen2", self.name, config, self.vocabulary,
                                    {"rope.freq_base": config.rope_parameters["rope_theta"]})  # fmt: skip
        common.add_tensors(writer, common.text_tensors(model, gguf.MODEL_ARCH.QWEN2, config))
        finish(writer)

    def write_vision(self, path, model):
        c = model.config.vision_config
        tower = dict(image_size=SIDE, patch_size=PATCH, hidden_size=c.hidden_size, intermediate_size=c.intermediate_size,
                     layers=c.num_hidden_layers, heads=c.num_attention_heads, eps=c.layer_norm_eps)  # fmt: skip
        writer = common.vision_writer(
            path, self.name, "mlp", tower, model.config.text_config.hidden_size, list(self.images.image_mean),
            list(self.images.image_std),
            {"has_llava_projector": True, "use_gelu": True, "vision.feature_layer": [c.num_hidden_layers],
             "vision.image_grid_pinpoints": [side for pair in PINPOINTS for side in pair],
             "vision.mm_patch_merge_type": "spatial_unpad", "vision.image_aspect_ratio": f"anyres_max_{MOST}",
             "vision.projector_hidden_act": model.config.projector_hidden_act},
        )  # fmt: skip

        def tensors():
            for name, values in common.siglip_tensors(model.model.vision_tower):
                if "post_ln" not in name:
                    yield name, values
            for name, values in common.parameters(model.model.multi_modal_projector):
                yield name.replace("linear_1", "mm.0").replace("linear_2", "mm.2"), values
            yield "v.image_newline", model.model.image_newline.detach().float().numpy()

        common.add_tensors(writer, tensors())
        finish(writer)
