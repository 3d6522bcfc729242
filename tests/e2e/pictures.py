"""Pictures that the end-to-end tests draw themselves, files that are none, and requests about them."""

import random
import struct
import zlib

from ferry_job import DEMO, ROOT, pb

SHAPES = DEMO / "pictures"
FRAMES = ROOT / "tests/golden/demo_vision"
PLACE = "<|vision_start|><|image_pad|><|vision_end|>"


def shapes(index):
    return (SHAPES / f"shapes{index}.png").read_bytes()


def frames():
    return [path.read_bytes() for path in sorted(FRAMES.glob("frame*.png"))]


def png_of(width, height, rows, color_type=2):
    """A PNG that declares `width` x `height` and holds `rows`, each with its filter byte."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, color_type, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows, 1)) + chunk(b"IEND", b"")


def drawn(width, height, seed=0):
    """A PNG of a rectangle in another colour than its ground."""
    choose = random.Random(f"{width} {height} {seed}")
    ground, colour = (bytes(choose.randrange(256) for _ in range(3)) for _ in range(2))
    left, right = sorted((choose.randrange(width + 1), choose.randrange(width + 1)))
    top, bottom = sorted((choose.randrange(height + 1), choose.randrange(height + 1)))
    empty = b"\0" + ground * width
    crossed = b"\0" + ground * left + colour * (right - left) + ground * (width - right)
    return png_of(width, height, empty * top + crossed * (bottom - top) + empty * (height - bottom))


def square(colour):
    """A PNG of a square at the lower right: others are the same in their upper half."""
    ground = b"\0" + bytes((30, 30, 30)) * 128
    crossed = ground[: 1 + 3 * 64] + bytes(colour) * 56 + ground[1 + 3 * 120 :]
    return png_of(128, 128, ground * 64 + crossed * 56 + ground * 8)


def noise(width, height):
    """A PNG that cannot be packed: about as many bytes as it has channels."""
    choose = random.Random(1)
    return png_of(width, height, b"".join(b"\0" + choose.randbytes(3 * width) for _ in range(height)))


def bombs(side=60000):
    """{type: a file of a few bytes that declares `side` x `side` pixels}"""
    gif = b"GIF89a" + struct.pack("<HHBBB", side, side, 0x80, 0, 0) + bytes(6)
    gif += b"," + struct.pack("<HHHHB", 0, 0, side, side, 0) + b"\2\2\x44\1\0;"
    jpeg = b"\xff\xd8\xff\xc0" + struct.pack(">HBHHB", 17, 8, side, side, 3) + b"\1\x11\0\2\x11\0\3\x11\0"
    jpeg += b"\xff\xda" + struct.pack(">HB", 12, 3) + b"\1\0\2\0\3\0\0\x3f\0" + bytes(64) + b"\xff\xd9"
    canvas = b"VP8X" + struct.pack("<I", 10) + b"\2\0\0\0" + 2 * (side - 1).to_bytes(3, "little")  # of one that moves
    coded = b"VP8L" + struct.pack("<I", 6) + b"\x2f\xff\xff\xff\x0f\0"  # 16384 x 16384, the most that it can say
    webp = lambda chunks: b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WEBP" + chunks
    return {
        "PNG": png_of(side, side, bytes(100_000)),
        "GIF": gif,
        "JPEG": jpeg,
        "WebP": webp(canvas + coded),
        "WebP without a canvas": webp(coded),
    }


def part(medium):
    """A text, a picture's bytes, its URL (`url:…`), or a list of frames, as part of a message."""
    if isinstance(medium, list):
        return pb.Part(video=pb.Video(frames=[pb.Picture(data=frame) for frame in medium]))
    if isinstance(medium, bytes):
        return pb.Part(picture=pb.Picture(data=medium))
    if medium.startswith("url:"):
        return pb.Part(picture=pb.Picture(url=medium.removeprefix("url:")))
    return pb.Part(text=medium)


def parts_request(*parts, **sampling):
    """A user's message of `parts`, in order."""
    message = pb.ChatMessage(role="user", parts=[part(medium) for medium in parts])
    return pb.GenerateRequest(chat=pb.Chat(messages=[message]), sampling=pb.Sampling(**sampling))


def beside_request(text, *media, **sampling):
    """A text that holds the places of the pictures beside it."""
    return pb.GenerateRequest(text=text, media=[part(medium) for medium in media], sampling=pb.Sampling(**sampling))
