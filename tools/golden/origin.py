# SPDX-License-Identifier: Apache-2.0
"""The `origin` field of every file of expected values: which command made it, with which packages."""

import importlib.metadata
import sys
from pathlib import Path


def origin(**facts):
    packages = ("torch", "transformers", "tokenizers", "gguf", "numpy", "sentencepiece")
    return {
        "command": " ".join(["tools/golden/" + Path(sys.argv[0]).name, *(Path(a).name for a in sys.argv[1:])]),
        "packages": {name: importlib.metadata.version(name) for name in packages},
        **facts,
    }
