# SPDX-License-Identifier: Apache-2.0
"""Saves tiny models of tiny_vision.py as their publishers do: what `convert` makes of a folder is to be the files of
tests/data/vision, but for keys that tell of names and types.

    vision_checkpoints.py [NAME ...] [--data tests/data]     into tests/data/checkpoint/<name>

Each folder has config.json, generation_config.json, the weights as halves in safetensors, preprocessor_config.json,
tokenizer.json, tokenizer_config.json, and the chat template where its publisher keeps it:

    gemma3            as Google: processor_config.json, chat_template.json; config.json in the older form, which leaves out
                      of both parts what is as their classes have it; tensors under older names, as LLaVA-OneVision's
    idefics3          as SmolVLM: processor_config.json, chat_template.json; config.json in the older form (torch_dtype,
                      rope_theta), which leaves out of vision_config what is as its class has it
    llava_onevision   as llava-hf: processor_config.json, chat_template.json; config.json in the older form; tensors under
                      older names (language_model.model., vision_tower.vision_model., image_newline)
    minicpmv4_6       as openbmb: two files of weights and their index, chat_template.jinja, config.json in today's form;
                      the head is tied; what prepares pictures has max_slice_nums, which the vision file keeps
"""

import json
import shutil

from safetensors.torch import load_file, save_file
from transformers import Gemma3TextConfig, Idefics3Config, LlavaOnevisionConfig
from transformers.utils import logging

from tiny import parse_options
from vision_gemma3 import Gemma3, SentencePieceVocabulary
from vision_idefics3 import Idefics3
from vision_llava_onevision import LlavaOnevision
from vision_minicpmv import MiniCpmV46

logging.set_verbosity_error()


def write_json(path, value):
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def read_json(path):
    return json.loads(path.read_text())


def older_form(config, vision_defaults):
    """config.json as transformers 4 wrote it."""
    config["torch_dtype"] = config.pop("dtype")
    config.pop("_pad_token_id", None)
    config["transformers_version"] = "4.46.0"
    for part in (config["text_config"], config["vision_config"]):
        part.pop("dtype", None)
    rope = config["text_config"].pop("rope_parameters")
    rope = rope.get("full_attention", rope)  # Gemma's for its layers without a window; that of the others is its class's
    config["text_config"] |= {"rope_theta": rope["rope_theta"], "rope_scaling": None}
    config["vision_config"] = what_differs(config["vision_config"], vision_defaults)
    return config


def what_differs(part, defaults):
    return {k: v for k, v in part.items() if k == "model_type" or v != getattr(defaults, k, None)}


def older_names(folder):
    """The tower's tensors as they were called before it stood alone."""
    weights = load_file(folder / "model.safetensors")
    weights = {name.replace("vision_tower.", "vision_tower.vision_model."): values for name, values in weights.items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def preprocessor(family, processor_class):
    """preprocessor_config.json without what transformers keeps there for itself."""
    settings = {k: v for k, v in family.images.to_dict().items() if v is not None}
    settings["image_processor_type"] = type(family.images).__name__.removesuffix("Pil")
    return settings | {"processor_class": processor_class}


def save_tokenizer(vocabulary, folder):
    made = vocabulary.tokenizer()
    made.save_pretrained(folder)
    added = {
        str(i): {"content": token, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}
        for i, token in enumerate(vocabulary.tokens)
        if i in vocabulary.control_ids()
    }
    unknown = {"unk_token": made.unk_token} if made.unk_token else {}
    write_json(folder / "tokenizer_config.json", {
        "add_bos_token": isinstance(vocabulary, SentencePieceVocabulary),
        "add_prefix_space": False,
        "added_tokens_decoder": added,
        "bos_token": vocabulary.bos,
        "eos_token": vocabulary.eos,
        "pad_token": made.pad_token,
        "model_max_length": 2048,
        "tokenizer_class": "PreTrainedTokenizerFast",
    } | unknown)  # fmt: skip


def save(family, folder):
    if folder.exists():
        shutil.rmtree(folder)
    model = family.build().half()
    model.save_pretrained(folder, max_shard_size="300KB" if isinstance(family, MiniCpmV46) else "1GB")
    save_tokenizer(family.vocabulary, folder)
    template = family.vocabulary.template
    if isinstance(family, MiniCpmV46):
        (folder / "chat_template.jinja").write_text(template)
        write_json(folder / "preprocessor_config.json", preprocessor(family, "MiniCPMV4_6Processor"))
        return
    write_json(folder / "chat_template.json", {"chat_template": template})
    config = read_json(folder / "config.json")
    if isinstance(family, Idefics3):
        config = older_form(config, Idefics3Config().vision_config)
        config["text_config"]["architectures"] = ["VLlama3ForCausalLM"]
        name, facts = "Idefics3Processor", {"image_seq_len": family.processor.image_seq_len}
    elif isinstance(family, Gemma3):
        config = older_form(config, LlavaOnevisionConfig().vision_config)
        # The first transformers that had Gemma 3 did not know these, but for the last, which is as its class has it.
        unknown = ("layer_types", "use_bidirectional_attention", "_sliding_window_pattern", "rope_theta")
        text = {k: v for k, v in config["text_config"].items() if k not in unknown}
        config["text_config"] = what_differs(text, Gemma3TextConfig()) | {"rope_scaling": None}
        older_names(folder)
        name, facts = "Gemma3Processor", {"image_seq_length": family.rows_per_picture}
    else:
        config = older_form(config, LlavaOnevisionConfig().vision_config)
        older_names(folder)
        name = "LlavaOnevisionProcessor"
        facts = {"num_image_tokens": family.processor.num_image_tokens, "vision_feature_select_strategy": "full",
                 "image_token": "<image>", "video_token": "<video>"}  # fmt: skip
    write_json(folder / "config.json", config)
    write_json(folder / "processor_config.json", facts | {"processor_class": name})
    write_json(folder / "preprocessor_config.json", preprocessor(family, name))


def main():
    arguments = parse_options(__doc__, "names")
    for kind in (Gemma3, Idefics3, LlavaOnevision, MiniCpmV46):
        if not arguments.names or kind.name in arguments.names:
            folder = arguments.data / "checkpoint" / kind.name
            save(kind(), folder)
            print(kind.name, *(f"{path.name} {path.stat().st_size}" for path in sorted(folder.iterdir())), flush=True)


if __name__ == "__main__":
    main()
