# SPDX-License-Identifier: Apache-2.0
"""A tiny Gemma 3 that sees: squashed pictures, pooled patches, and a gemma3 in which the rows of a picture see each other.

A picture is resized to image_size x image_size, bilinearly and without its aspect. Patches are averaged over squares of
`clip.vision.projector.scale_factor` a side (absent: 4), normed (mm.soft_emb_norm has the one added, eps is the tower's), and
multiplied by mm.input_projection, which files have as [tower's width, text's width]: the transpose of other matrices.

Rows go into the text model as they are; the root of the width scales embeddings of tokens only. A row sees all rows of its
picture, those after it too; in layers with a window what lies a window or more behind it is hidden as usual. Markers are
text around the rows, tokenized together with the text they stand in, so that line ends join:

    "\\n\\n" <start_of_image> rows <end_of_image> "\\n\\n"
"""

import gguf
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers
from transformers import Gemma3Config, Gemma3ForConditionalGeneration, PreTrainedTokenizerFast
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil
from transformers.models.gemma3.processing_gemma3 import Gemma3Processor

import vision_common as common
from tiny import finish

SIDE, PATCH, POOL, WINDOW = 32, 4, 2, 20
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}<start_of_turn>"
    "{{ 'model' if message['role'] == 'assistant' else message['role'] }}\n{{ message['content'] | trim }}<end_of_turn>\n"
    "{% endfor %}{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)


class SentencePieceVocabulary:
    """Bytes, letters and a few words; runs of line ends that are never taken apart; control tokens."""

    first = ["<pad>", "<eos>", "<bos>", "<unk>"]
    controls = ["<start_of_turn>", "<end_of_turn>", "<start_of_image>", "<end_of_image>", "<image_soft_token>"]
    runs = ["\n\n", "\n\n\n", "\n\n\n\n"]
    merges = [("▁", "t"), ("h", "e"), ("▁t", "he"), ("i", "s")]
    letters = ["▁", "\n", *"etaoinsrhldcumfpgwybvWI?."]
    bos, eos, template = "<bos>", "<end_of_turn>", TEMPLATE

    def __init__(self):
        normal = ["".join(pair) for pair in self.merges] + self.letters
        kind = gguf.TokenType
        table = [(token, kind.UNKNOWN if token == "<unk>" else kind.CONTROL) for token in self.first + self.controls]
        table += [(token, kind.USER_DEFINED) for token in self.runs]
        table += [(f"<0x{b:02X}>", kind.BYTE) for b in range(256)] + [(token, kind.NORMAL) for token in normal]
        self.tokens, self.kinds = [token for token, _ in table], [kind for _, kind in table]
        self.scores = [-float(normal.index(t)) if k == kind.NORMAL else -1000.0 for t, k in table]

    def id(self, token):
        return self.tokens.index(token)

    def control_ids(self):
        return range(len(self.first + self.controls))

    def __len__(self):
        return len(self.tokens)

    def tokenizer(self):
        vocabulary = {token: i for i, token in enumerate(self.tokens)}
        inner = Tokenizer(models.BPE(vocabulary, self.merges, byte_fallback=True, unk_token="<unk>", fuse_unk=True))
        inner.normalizer = normalizers.Replace(" ", "▁")
        inner.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
        inner.add_tokens([AddedToken(token, normalized=False) for token in self.runs])
        inner.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in self.first + self.controls])
        return PreTrainedTokenizerFast(
            tokenizer_object=inner, bos_token="<bos>", eos_token="<end_of_turn>", pad_token="<pad>", unk_token="<unk>",
            extra_special_tokens={"boi_token": "<start_of_image>", "eoi_token": "<end_of_image>",
                                  "image_token": "<image_soft_token>"},
        )  # fmt: skip

    def write(self, writer):
        writer.add_tokenizer_model("llama")
        writer.add_tokenizer_pre("default")
        writer.add_token_list(self.tokens)
        writer.add_token_scores(self.scores)
        writer.add_token_types(self.kinds)
        writer.add_bos_token_id(self.id("<bos>"))
        writer.add_eos_token_id(self.id("<end_of_turn>"))
        writer.add_unk_token_id(self.id("<unk>"))
        writer.add_pad_token_id(self.id("<pad>"))
        writer.add_add_bos_token(True)
        writer.add_add_space_prefix(False)
        writer.add_chat_template(self.template)


def centre(name):
    """The last norm makes up for small embeddings, which are the head too."""
    if name.endswith("language_model.norm.weight"):
        return 2.0
    return 0.0 if "language_model" in name or "mm_soft_emb_norm" in name else common.about_one(name)


def gain(name, weight):
    """Embeddings are multiplied by the root of their width; small ones keep a token from being its own best successor."""
    return 0.4 * weight.shape[-1] ** -0.5 if "embed_tokens" in name else common.sharper_attention(name, weight)


class Gemma3(common.Family):
    name, seed, picture_mark = "gemma3", 535, "<start_of_image>"
    cases = [
        (["100x40.png"], "What is the thing on the left? Tell me 3 facts."),
        (["64x64.png"], "Which colours?\n\nName them."),
        (["37x23.png", "30x90.png"], "Compare these two, the first with the second."),
        (["1x1.png"], "Is it dark?"),
    ]
    vocabulary = SentencePieceVocabulary()

    def __init__(self):
        self.images = Gemma3ImageProcessorPil(size={"height": SIDE, "width": SIDE})
        self.rows_per_picture = (SIDE // PATCH // POOL) ** 2
        self.processor = Gemma3Processor(self.images, self.vocabulary.tokenizer(), image_seq_length=self.rows_per_picture)

    def build(self):
        config = Gemma3Config(
            mm_tokens_per_image=self.rows_per_picture,
            boi_token_index=self.vocabulary.id("<start_of_image>"),
            eoi_token_index=self.vocabulary.id("<end_of_image>"),
            image_token_index=self.vocabulary.id("<image_soft_token>"),
            tie_word_embeddings=True,
            vision_config=dict(model_type="siglip_vision_model", hidden_size=48, intermediate_size=96,
                               num_hidden_layers=3, num_attention_heads=3, image_size=SIDE, patch_size=PATCH,
                               vision_use_head=False),
            text_config=dict(model_type="gemma3_text", hidden_size=32, intermediate_size=64, num_hidden_layers=6,
                             num_attention_heads=2, num_key_value_heads=1, head_dim=16, query_pre_attn_scalar=16,
                             sliding_window=WINDOW, vocab_size=len(self.vocabulary), max_position_embeddings=2048),
        )  # fmt: skip
        config._attn_implementation = "eager"
        return common.randomise(Gemma3ForConditionalGeneration(config), self.seed, gain, centre)

    def text_model(self, model):
        return model.model.language_model

    def inputs(self, pictures, text):
        inputs = dict(self.processor(text=[text], images=[pictures], add_special_tokens=False, return_tensors="pt"))
        plain = self.images([pictures], do_rescale=False, do_normalize=False)["pixel_values"]
        tiles = [(i, tile.transpose(1, 2, 0)) for i, tile in enumerate(plain)]
        return inputs, self.vocabulary.id("<image_soft_token>"), tiles

    def write_text(self, path, model):
        config = model.config.text_config
        writer = common.text_writer(path, "gemma3", self.name, config, self.vocabulary, {
            "attention.key_length": config.head_dim,
            "attention.value_length": config.head_dim,
            "attention.sliding_window": WINDOW,
            "rope.freq_base": config.rope_parameters["full_attention"]["rope_theta"],
        })  # fmt: skip
        tensors = common.text_tensors(model, gguf.MODEL_ARCH.GEMMA3, config)
        common.add_tensors(writer, ((name, v + 1 if name.endswith("norm.weight") else v) for name, v in tensors))
        finish(writer)

    def write_vision(self, path, model):
        c = model.config.vision_config
        tower = dict(image_size=SIDE, patch_size=PATCH, hidden_size=c.hidden_size, intermediate_size=c.intermediate_size,
                     layers=c.num_hidden_layers, heads=c.num_attention_heads, eps=c.layer_norm_eps)  # fmt: skip
        writer = common.vision_writer(
            path, self.name, "gemma3", tower, model.config.text_config.hidden_size, list(self.images.image_mean),
            list(self.images.image_std), {"use_gelu": True, "vision.projector.scale_factor": POOL},
        )  # fmt: skip

        def tensors():
            yield from common.siglip_tensors(model.model.vision_tower)
            projector = dict(common.parameters(model.model.multi_modal_projector))
            yield "mm.input_projection.weight", projector["mm_input_projection_weight"]
            yield "mm.soft_emb_norm.weight", projector["mm_soft_emb_norm.weight"] + 1

        common.add_tensors(writer, tensors(), single=lambda name: "_embd." in name)
        finish(writer)
