#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/data/pictures: small pictures of every kind, and as PPM what they show.

Pillow writes and reads what it can; PNG types that it cannot write are put together here, with expected values by definition
(16 bits keep the high byte, alpha goes over white). `resize.bin` holds what Pillow's resize makes of pseudo-random pictures that
the test makes again; Pillow before 13, which has another order of passes. The arithmetic JPEG is transcoded by jpegtran (Debian package libjpeg-turbo-progs).
"""
import io
import pathlib
import struct
import subprocess
import zlib

import numpy
from PIL import Image

OUT = pathlib.Path(__file__).parents[2] / "tests/data/pictures"
WIDTH, HEIGHT = 29, 18


def scene():
    """A smooth gradient with a few hard-edged blocks, [18, 29, 3]."""
    y, x = numpy.mgrid[0:HEIGHT, 0:WIDTH]
    pixels = numpy.stack([x * 8 + 10, y * 13 + 5, 250 - x * 4 - y * 6], axis=2).clip(0, 255).astype(numpy.uint8)
    pixels[3:9, 4:12] = (230, 20, 30)
    pixels[8:15, 17:25] = (20, 40, 200)
    return pixels


def save(name, data):
    (OUT / name).write_bytes(data)


def expect(name, pixels):
    """What the fixture shows, as PPM."""
    pixels = numpy.ascontiguousarray(pixels, dtype=numpy.uint8)
    save(name, b"P6\n%d %d\n255\n" % (pixels.shape[1], pixels.shape[0]) + pixels.tobytes())


def encode(image, kind, **options):
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def as_pillow_reads(data):
    return numpy.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def over_white(rgb, alpha):
    """Rounded to nearest, which is what Pillow's alpha_composite gives; [h, w, 3] and [h, w]."""
    rgb, alpha = rgb.astype(int), alpha.astype(int)[..., None]
    return (rgb * alpha + 255 * (255 - alpha) + 127) // 255


# --- JPEG -------------------------------------------------------------------------------------------------------------

def without_segment(jpeg, marker):
    """The JPEG without the segments of a marker."""
    result, at = jpeg[:2], 2
    while jpeg[at + 1] != 0xDA:
        end = at + 2 + struct.unpack(">H", jpeg[at + 2:at + 4])[0]
        if jpeg[at + 1] != marker:
            result += jpeg[at:end]
        at = end
    return result + jpeg[at:]


def jpegs():
    rgb = Image.fromarray(scene())
    kinds = {
        "444.jpg": dict(subsampling="4:4:4", quality=90),
        "420.jpg": dict(subsampling="4:2:0", quality=85),
        "422.jpg": dict(subsampling="4:2:2", quality=85),
        "progressive.jpg": dict(subsampling="4:2:0", quality=85, progressive=True),
        "restart.jpg": dict(subsampling="4:2:0", quality=85, restart_marker_rows=1),
    }
    for name, options in kinds.items():
        data = encode(rgb, "JPEG", **options)
        save(name, data)
        if name in ("444.jpg", "420.jpg", "422.jpg"):
            expect(name.replace(".jpg", ".ppm"), as_pillow_reads(data))
        else:  # the same coefficients in another order
            assert (as_pillow_reads(data) == as_pillow_reads((OUT / "420.jpg").read_bytes())).all()
    arithmetic = subprocess.run(["jpegtran", "-arithmetic"], input=(OUT / "420.jpg").read_bytes(), capture_output=True, check=True)
    save("arithmetic.jpg", arithmetic.stdout)
    gray = encode(rgb.convert("L"), "JPEG", quality=90)
    save("gray.jpg", gray)
    expect("gray.ppm", as_pillow_reads(gray))

    black = Image.fromarray(numpy.tile(numpy.arange(WIDTH, dtype=numpy.uint8) * 5, (HEIGHT, 1)))
    cmyk = Image.merge("CMYK", (*rgb.convert("CMYK").split()[:3], black))
    data = encode(cmyk, "JPEG", quality=90)
    save("cmyk.jpg", data)
    expect("cmyk.ppm", as_pillow_reads(data))
    save("cmyk-no-adobe.jpg", without_segment(data, 0xEE))
    # YCCK: three inks become luminance and chroma, and the Adobe segment says so. Pillow inverts what it stores.
    cyan, magenta, yellow, _ = cmyk.split()
    ycc = Image.merge("RGB", (cyan, magenta, yellow)).convert("YCbCr")
    data = encode(Image.merge("CMYK", [*[Image.eval(c, lambda v: 255 - v) for c in ycc.split()], black]), "JPEG", quality=95)
    at = data.index(b"Adobe") + 11
    assert data[at] in (0, 2)
    data = data[:at] + b"\x02" + data[at + 1:]
    save("ycck.jpg", data)
    expect("ycck.ppm", as_pillow_reads(data))
    assert abs(as_pillow_reads(data).astype(int) - numpy.asarray(cmyk.convert("RGB"))).mean() < 5


# --- PNG --------------------------------------------------------------------------------------------------------------

ADAM7 = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]


def png_rows(samples, depth):
    """Unfiltered rows of samples [h, w, channels]."""
    rows = b""
    for row in samples:
        flat = row.reshape(-1)
        if depth == 16:
            packed = flat.astype(">u2").tobytes()
        elif depth == 8:
            packed = flat.astype(numpy.uint8).tobytes()
        else:
            bits = "".join(format(int(s), f"0{depth}b") for s in flat)
            packed = bytes(int(bits[i:i + 8].ljust(8, "0"), 2) for i in range(0, len(bits), 8))
        rows += b"\0" + packed
    return rows


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(samples, depth, color, interlaced=False, extra=()):
    height, width = samples.shape[:2]
    header = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, int(interlaced))
    if interlaced:
        passes = [samples[y::dy, x::dx] for x, y, dx, dy in ADAM7]
        rows = b"".join(png_rows(p, depth) for p in passes if p.size)
    else:
        rows = png_rows(samples, depth)
    chunks = [chunk(b"IHDR", header), *[chunk(k, d) for k, d in extra], chunk(b"IDAT", zlib.compress(rows, 9)), chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def gray3(samples):
    return numpy.repeat(samples, 3, axis=2)


def pngs():
    rgb = scene().astype(int)
    expect("scene.ppm", rgb)
    y, x = numpy.mgrid[0:HEIGHT, 0:WIDTH]
    luma = ((x * 7 + y * 11) % 256)[..., None]
    alpha = ((x * 9 + y * 5) % 256)
    alpha[0:4, 0:6], alpha[4:8, 0:6] = 0, 255
    low = (x * 37 + y * 101)[..., None] % 256  # low bytes, which must not matter
    for depth in (1, 2, 4, 8):
        samples = luma >> (8 - depth)
        save(f"gray{depth}.png", png(samples, depth, 0))
        expect(f"gray{depth}.ppm", gray3(samples * 255 // (2 ** depth - 1)))
    save("gray16.png", png(luma * 256 + low, 16, 0))  # as gray8
    save("rgb8.png", png(rgb, 8, 2))
    save("rgb16.png", png(rgb * 256 + low, 16, 2))
    save("rgb8-interlaced.png", png(rgb, 8, 2, interlaced=True))
    rgba = numpy.concatenate([rgb, alpha[..., None]], axis=2)
    save("rgba8.png", png(rgba, 8, 6))
    save("rgba8-interlaced.png", png(rgba, 8, 6, interlaced=True))
    save("rgba16.png", png(rgba * 256 + low, 16, 6))
    expect("rgba.ppm", over_white(rgb, alpha))
    pillow = Image.alpha_composite(Image.new("RGBA", (WIDTH, HEIGHT), "white"), Image.fromarray(rgba.astype(numpy.uint8)))
    assert (numpy.asarray(pillow.convert("RGB")) == over_white(rgb, alpha)).all()
    gray_alpha = numpy.concatenate([luma, alpha[..., None]], axis=2)
    save("gray-alpha8.png", png(gray_alpha, 8, 4))
    save("gray-alpha16.png", png(gray_alpha * 256 + low, 16, 4))
    expect("gray-alpha.ppm", over_white(gray3(luma), alpha))
    red = numpy.array([230, 20, 30])
    save("rgb8-key.png", png(rgb, 8, 2, extra=[(b"tRNS", struct.pack(">HHH", *red))]))
    expect("rgb8-key.ppm", numpy.where((rgb == red).all(axis=2, keepdims=True), 255, rgb))
    save("gray4-key.png", png(luma >> 4, 4, 0, extra=[(b"tRNS", struct.pack(">H", 3))]))
    expect("gray4-key.ppm", gray3(numpy.where(luma >> 4 == 3, 255, (luma >> 4) * 17)))
    colors = numpy.random.default_rng(7).integers(0, 256, (256, 3))
    for depth in (1, 2, 4, 8):
        samples, table = luma >> (8 - depth), colors[:2 ** depth]
        for name, interlaced in ((f"palette{depth}.png", False), *([("palette4-interlaced.png", True)] if depth == 4 else [])):
            save(name, png(samples, depth, 3, interlaced, [(b"PLTE", table.astype(numpy.uint8).tobytes())]))
        expect(f"palette{depth}.ppm", table[samples[..., 0]])
    opacity = [0, 60, 128, 255, 200]
    table_alpha = numpy.array(opacity + [255] * 11)
    extra = [(b"PLTE", colors[:16].astype(numpy.uint8).tobytes()), (b"tRNS", bytes(opacity))]
    save("palette4-alpha.png", png(luma >> 4, 4, 3, extra=extra))
    index = (luma >> 4)[..., 0]
    expect("palette4-alpha.ppm", over_white(colors[index], table_alpha[index]))
    for name in ("rgb8.png", "rgb8-interlaced.png", "palette8.png", "gray8.png"):
        expected = (OUT / {"rgb8.png": "scene.ppm", "rgb8-interlaced.png": "scene.ppm"}.get(name, name.replace(".png", ".ppm")))
        assert (as_pillow_reads((OUT / name).read_bytes()) == as_pillow_reads(expected.read_bytes())).all(), name


# --- the others -------------------------------------------------------------------------------------------------------

def webps():
    rgb = Image.fromarray(scene())
    save("lossless.webp", encode(rgb, "WEBP", lossless=True))
    lossy = encode(rgb, "WEBP", quality=85)
    save("lossy.webp", lossy)
    expect("lossy.ppm", as_pillow_reads(lossy))
    rgba = Image.open(OUT / "rgba8.png").convert("RGBA")
    save("rgba.webp", encode(rgba, "WEBP", lossless=True, exact=True))
    other = Image.fromarray(255 - scene())
    save("animated.webp", encode(rgb, "WEBP", lossless=True, save_all=True, append_images=[other], duration=100))


def gifs():
    rgb = Image.fromarray(scene())
    few = rgb.quantize(32)
    save("plain.gif", encode(few, "GIF", interlace=0))
    save("interlaced.gif", encode(few, "GIF", interlace=1))
    expect("gif.ppm", numpy.asarray(few.convert("RGB")))
    save("animated.gif", encode(few, "GIF", interlace=0, save_all=True, append_images=[Image.fromarray(255 - scene()).quantize(32)]))
    index = numpy.asarray(few)
    clear = int(index[5, 6])
    save("transparent.gif", encode(few, "GIF", interlace=0, transparency=clear, optimize=False))
    expect("transparent.ppm", numpy.where((index == clear)[..., None], 255, numpy.asarray(few.convert("RGB"))))


def bmps():
    rgb = Image.fromarray(scene())
    save("rgb.bmp", encode(rgb, "BMP"))
    few = rgb.quantize(16)
    save("palette.bmp", encode(few, "BMP"))
    expect("palette-bmp.ppm", numpy.asarray(few.convert("RGB")))
    bits = rgb.convert("1")
    save("bits.bmp", encode(bits, "BMP"))
    expect("bits.ppm", numpy.asarray(bits.convert("RGB")))
    save("bits.pbm", encode(bits, "PPM"))


def orientations():
    """The same arrow, stored in the eight ways that a camera may be held."""
    arrow = numpy.zeros((32, 64, 3), numpy.uint8)
    arrow[:, :32], arrow[:, 32:] = (220, 30, 30), (240, 240, 240)
    arrow[8:32, 40:48] = (0, 0, 0)
    arrow[0:16, 32:56] = (0, 0, 0)
    expect("arrow.ppm", arrow)
    upright = Image.fromarray(arrow)
    # What makes the stored picture from the upright one: the inverse of what the viewer does.
    t = Image.Transpose
    stored = {1: None, 2: t.FLIP_LEFT_RIGHT, 3: t.ROTATE_180, 4: t.FLIP_TOP_BOTTOM, 5: t.TRANSPOSE, 6: t.ROTATE_90,
              7: t.TRANSVERSE, 8: t.ROTATE_270}
    for orientation, method in stored.items():
        image = upright if method is None else upright.transpose(method)
        exif = Image.Exif()
        exif[0x0112] = orientation
        for name, kind, options in ((f"arrow{orientation}.jpg", "JPEG", dict(quality=95, subsampling="4:4:4")),
                                    (f"arrow{orientation}.png", "PNG", {}), (f"arrow{orientation}.webp", "WEBP", dict(lossless=True))):
            save(name, encode(image, kind, exif=exif, **options))


# --- resizing ---------------------------------------------------------------------------------------------------------

def noise(width, height):
    """Bytes of a linear congruential generator, every second row a ramp, so that sums overshoot and rounding shows."""
    pixels = numpy.zeros(width * height * 3, numpy.uint8)
    state = width * 1000 + height
    for i in range(pixels.size):
        state = (state * 1664525 + 1013904223) % 2 ** 32
        pixels[i] = state >> 24
    pixels = pixels.reshape(height, width, 3)
    pixels[1::2] = (numpy.arange(width) * 255 // max(width - 1, 1))[None, :, None]
    return pixels


def resizes():
    """Text header lines `filter width height new_width new_height`, each followed by the pixels."""
    sizes = [((37, 23), (11, 7)), ((37, 23), (53, 41)), ((37, 23), (37, 9)), ((37, 23), (20, 23)), ((37, 23), (1, 1)),
             ((37, 23), (36, 24)), ((1, 1), (5, 3)), ((1, 100), (3, 7)), ((100, 1), (7, 3)), ((3, 2), (31, 29)), ((257, 27), (28, 13)),
             ((13, 401), (2, 31)), ((64, 48), (32, 24)), ((97, 89), (14, 14))]
    filters = {"nearest": Image.Resampling.NEAREST, "bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC,
               "lanczos": Image.Resampling.LANCZOS}
    out = b""
    for name, method in filters.items():
        for source, target in sizes:
            resized = Image.fromarray(noise(*source)).resize(target, method)
            out += b"%s %d %d %d %d\n" % (name.encode(), *source, *target) + numpy.asarray(resized).tobytes()
    save("resize.bin", out)


if __name__ == "__main__":
    OUT.mkdir(parents=True, exist_ok=True)
    pngs()
    jpegs()
    webps()
    gifs()
    bmps()
    orientations()
    resizes()
