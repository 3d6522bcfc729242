#!/usr/bin/env python3
"""Writes vision/: small pictures of every type with what Pillow makes of them, and what transformers' processors of Qwen3.5 make of
drawn pictures and videos: sizes, sampled frames, checksums of resized pixels and of patches.

    gen_vision_goldens.py OUT_DIR        needs torch, torchvision, transformers, pillow, numpy and safetensors

Written with torch 2.15.0, torchvision 0.29.2, transformers 5.23.0 and Pillow 13.0.0 on x86-64. A drawn picture has the byte
    ((7 x + 13 y + 29 c + (x y (c + 3) >> 2)) * 37 >> 3) & 255
in row y, column x and channel c; checksums are CRC-32.
"""

import io
import json
import pathlib
import random
import struct
import sys
import zlib

import numpy as np
import torch
from PIL import Image, ImageOps
from safetensors.numpy import save_file
from torchvision.transforms.v2 import functional as tvF
from transformers.models.qwen2_vl.image_processing_qwen2_vl import Qwen2VLImageProcessor
from transformers.models.qwen2_vl.image_processing_qwen2_vl import smart_resize as picture_size
from transformers.models.qwen3_vl.video_processing_qwen3_vl import Qwen3VLVideoProcessor
from transformers.models.qwen3_vl.video_processing_qwen3_vl import smart_resize as video_size
from transformers.video_utils import VideoMetadata

random_numbers = random.Random(20261123)
BUDGETS = [(65536, 16777216), (4096, 65536), (16384, 65536), (131072, 786432), (4096, 25165824)]


def drawn(height, width, shift=0):
    y, x, c = np.mgrid[0:height, 0:width, 0:3].astype(np.int64)
    x = x + shift
    return ((((7 * x + 13 * y + 29 * c + (x * y * (c + 3) >> 2)) * 37) >> 3) & 255).astype(np.uint8)


def channels_first(array):
    return torch.from_numpy(array).movedim(-1, -3).contiguous()


def png(color_type, bits, channels, height, width, extra=b""):
    """A PNG of random rows that Pillow itself does not write."""
    noise = np.random.default_rng(bits * 8 + color_type)
    row_bytes = (width * channels * bits + 7) // 8
    rows = b"".join(b"\0" + noise.integers(0, 256, row_bytes, dtype=np.uint8).tobytes() for _ in range(height))

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, bits, color_type, 0, 0, 0)
    palette = chunk(b"PLTE", extra) if extra else b""
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + palette + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def gif(screen, frame, transparent=None):
    """A GIF of literal codes whose first frame need not fill the screen."""
    left, top, width, height = frame
    data = b"GIF89a" + struct.pack("<HHBBB", *screen, 0x81, 1, 0) + bytes([1, 2, 3, 40, 50, 60, 70, 80, 90, 200, 210, 220])
    if transparent is not None:
        data += b"!\xf9\x04" + bytes([1, 0, 0, transparent]) + b"\0"
    data += b"," + struct.pack("<HHHHB", left, top, width, height, 0)
    codes = [code for i in range(width * height) for code in (4, (i * 7 // 3) % 4)] + [5]
    bits = sum(code << (3 * i) for i, code in enumerate(codes)).to_bytes((3 * len(codes) + 7) // 8, "little")
    for first in range(0, len(bits), 255):
        piece = bits[first : first + 255]
        data += bytes([len(piece)]) + piece if first else b"\x02" + bytes([len(piece)]) + piece
    return data + b"\0;"


def pictures():
    """{file name: bytes}"""
    y, x, c = np.mgrid[0:19, 0:26, 0:4]
    smooth = np.clip(128 + 100 * np.sin(x / (4 + c) + y / 5.0) + (x * y + c) % 9, 0, 255).astype(np.uint8)
    rgb, rgba, grey = Image.fromarray(smooth[:, :, :3]), Image.fromarray(smooth), Image.fromarray(smooth[:, :, 0])
    files = {}

    def add(name, image, **options):
        buffer = io.BytesIO()
        image.save(buffer, name.rsplit(".")[-1].upper().replace("JPG", "JPEG"), **options)
        files[name] = buffer.getvalue()

    add("rgb.png", rgb)
    add("rgba.png", rgba)
    add("grey_alpha.png", Image.merge("LA", [grey, grey.transpose(Image.Transpose.ROTATE_180)]))
    add("palette_transparent.png", rgb.quantize(11), transparency=3)
    add("one_bit.png", grey.convert("1"))
    files["grey_16.png"] = png(0, 16, 1, 7, 9)
    files["rgb_16.png"] = png(2, 16, 3, 7, 9)
    files["grey_2.png"] = png(0, 2, 1, 7, 9)
    files["palette_short.png"] = png(3, 4, 1, 7, 9, bytes(range(9)))
    add("baseline.jpg", rgb, quality=80)
    add("progressive.jpg", rgb, quality=60, progressive=True, subsampling=1)
    add("grey.jpg", grey)
    add("cmyk.jpg", rgb.convert("CMYK"))
    for orientation in (3, 5, 6, 8):
        exif = Image.Exif()
        exif[0x112] = orientation
        add(f"orientation_{orientation}.jpg", rgb, exif=exif)
    exif = Image.Exif()
    exif[0x112] = 7
    add("orientation_7.png", rgb, exif=exif)
    exif[0x112] = 2
    add("orientation_2.webp", rgb, exif=exif)
    add("lossy.webp", rgb, quality=70)
    add("alpha.webp", rgba, lossless=True, exact=True)
    add("moving.webp", rgb, save_all=True, append_images=[rgb.transpose(Image.Transpose.ROTATE_180)], duration=50)
    add("interlaced.gif", rgb.quantize(32), interlace=1)
    add("moving.gif", rgb, save_all=True, append_images=[rgb.transpose(Image.Transpose.ROTATE_180)])
    files["inside.gif"] = gif((10, 8), (2, 3, 5, 4))
    files["inside_transparent.gif"] = gif((10, 8), (2, 3, 5, 4), 2)
    files["outside.gif"] = gif((4, 4), (2, 3, 5, 4))
    return files


def crc(array):
    return zlib.crc32(np.ascontiguousarray(array).tobytes())


def refused(call):
    try:
        return list(map(int, call()))
    except ValueError:
        return []


def resize_case(height, width, to_height, to_width):
    resized = tvF.resize(
        channels_first(drawn(height, width)), [to_height, to_width], interpolation=tvF.InterpolationMode.BICUBIC, antialias=True
    )
    return {"from": [height, width], "to": [to_height, to_width], "crc": crc(resized.movedim(0, -1).numpy())}


def patches_case(height, width, budget):
    processor = Qwen2VLImageProcessor(
        size={"shortest_edge": budget[0], "longest_edge": budget[1]}, patch_size=16, image_mean=[0.5] * 3, image_std=[0.5] * 3
    )
    out = processor(images=[channels_first(drawn(height, width))], return_tensors="pt")
    return {"from": [height, width], "budget": budget, "grid": out["image_grid_thw"][0].tolist(), "crc": crc(out["pixel_values"].numpy())}


def video_case(frames, height, width, budget):
    processor = Qwen3VLVideoProcessor(size={"shortest_edge": budget[0], "longest_edge": budget[1]})
    video = channels_first(np.stack([drawn(height, width, 5 * i) for i in range(frames)]))
    out = processor(videos=[video], do_sample_frames=False, return_tensors="pt")
    return {
        "frames": frames, "from": [height, width], "budget": budget,
        "grid": out["video_grid_thw"][0].tolist(), "crc": crc(out["pixel_values_videos"].numpy()),
    }  # fmt: skip


def main(out_dir):
    out_dir.mkdir(exist_ok=True)
    draw, expected = random_numbers.randint, {}
    for name, data in pictures().items():
        (out_dir / name).write_bytes(data)
        expected[name] = np.array(ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB"))
    save_file(expected, out_dir / "expected.safetensors")

    sizes = [(draw(1, 3000), draw(1, 700), 8 * draw(1, 60), 8 * draw(1, 60)) for _ in range(30)]
    sizes += [(1, 1, 32, 64), (5, 3, 17, 211), (640, 480, 640, 96), (480, 640, 32, 640), (300, 200, 301, 201)]
    shapes = [(draw(1, 4000), draw(1, 4000)) for _ in range(60)] + [(1, 200), (1, 201), (16, 16), (48, 80), (80, 16), (33, 4000)]
    metadata = [(draw(1, 4000), rate) for rate in (1, 23.976, 24, 25, 29.97, 30, 50, 60, 0.5) for _ in range(3)]
    sampler = Qwen3VLVideoProcessor()
    cases = {
        "resize": [resize_case(*size) for size in sizes],
        "picture_size": [
            {"from": shape, "budget": BUDGETS[i % 4], "to": refused(lambda: picture_size(*shape, 32, *BUDGETS[i % 4]))}
            for i, shape in enumerate(shapes)
        ],
        "video_size": [
            {"frames": i % 11 + 1, "from": shape, "budget": BUDGETS[i % 5],
             "to": refused(lambda: video_size(i % 11 + 1, *shape, 2, 32, *BUDGETS[i % 5]))}
            for i, shape in enumerate(shapes)
        ],
        "samples": [
            {"frames": n, "fps": fps, "crc": crc(sampler.sample_frames(VideoMetadata(total_num_frames=n, fps=fps)).astype(np.int32))}
            for n, fps in metadata
        ],
        "patches": [patches_case(*shape, budget) for shape, budget in (
            ((37, 91), BUDGETS[0]), ((600, 431), BUDGETS[1]), ((96, 160), BUDGETS[1]), ((1, 150), BUDGETS[2]), ((700, 33), BUDGETS[3]))],
        "video": [video_case(*shape, budget) for *shape, budget in (
            (4, 64, 96, BUDGETS[4]), (5, 50, 71, BUDGETS[4]), (2, 200, 300, BUDGETS[1]), (7, 16, 20, BUDGETS[3]))],
    }  # fmt: skip
    lines = ",\n".join(f'"{kind}": [\n' + ",\n".join(json.dumps(case) for case in of_kind) + "\n]" for kind, of_kind in cases.items())
    (out_dir / "cases.json").write_text("{\n" + lines + "\n}\n")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
