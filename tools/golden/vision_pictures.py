# SPDX-License-Identifier: Apache-2.0
"""The pictures that the tiny vision models look at: gradients, shapes and a patch of noise, of odd sizes, as PNG."""

import numpy as np
from PIL import Image

SIZES = [(37, 23), (100, 40), (64, 64), (30, 90), (200, 150), (5, 3), (1, 1)]


def name(width, height):
    return f"{width}x{height}.png"


def draw(width, height):
    """RGB [height, width, 3]."""
    random = np.random.default_rng(width * 1000 + height)
    y, x = np.mgrid[0:height, 0:width] / max(width, height)
    slopes = random.uniform(-200, 200, (3, 2))
    pixels = np.stack([128 + a * (x - 0.5) + b * (y - 0.5) for a, b in slopes], axis=2)
    for _ in range(4):
        centre, radius = random.uniform(0, [width, height]), random.uniform(0.1, 0.25) * max(width, height)
        distance = np.abs(np.stack([x, y]) * max(width, height) - centre[:, None, None])
        is_round = random.random() < 0.5
        inside = np.hypot(*distance) < radius if is_round else np.maximum(*distance) < radius
        pixels[inside] = random.uniform(0, 255, 3)
    noise = random.uniform(-90, 90, (min(height, 24), min(width, 24), 3))
    pixels[-noise.shape[0] :, -noise.shape[1] :] += noise
    return pixels.clip(0, 255).astype(np.uint8)


def write(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for width, height in SIZES:
        Image.fromarray(draw(width, height)).save(folder / name(width, height), optimize=True)
