# SPDX-License-Identifier: Apache-2.0
"""The models as transformers runs them: a GGUF file dequantised to float32, eager attention."""

import os
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
logging.set_verbosity_error()
logging.disable_progress_bar()


def load_transformers(path):
    path = Path(path)
    config = AutoConfig.from_pretrained(path.parent, gguf_file=path.name)
    if config.model_type == "gemma3_text":
        # A GGUF file has no key for the query scale; its meaning is 1/sqrt(head width) for every size below 27B, while
        # transformers keeps its default, which is right for heads of 256 only.
        config.query_pre_attn_scalar = config.head_dim
    return AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, config=config, dtype=torch.float32, attn_implementation="eager"
    ).eval()


def load_tokenizer(path):
    path = Path(path)
    return AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
