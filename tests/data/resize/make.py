"""Makes the pictures beside this script: small sources and what OpenCV and Pillow scale them to.

    pip install numpy==2.4.6 opencv-python-headless==4.10.0.84 Pillow==13.0.0
    python make.py

Names: <source>.png and <source>.<filter>.<width>x<height>.png.
"""

from pathlib import Path

import cv2
import numpy
from PIL import Image

FOLDER = Path(__file__).parent
OPENCV = {
    "cv2-area": cv2.INTER_AREA,
    "cv2-linear": cv2.INTER_LINEAR,
    "cv2-cubic": cv2.INTER_CUBIC,
    "cv2-nearest-exact": cv2.INTER_NEAREST_EXACT,
}
PILLOW = {
    "pillow-lanczos": Image.Resampling.LANCZOS,
    "pillow-bicubic": Image.Resampling.BICUBIC,
    "pillow-bilinear": Image.Resampling.BILINEAR,
    "pillow-box": Image.Resampling.BOX,
}
# Width, height, channels, and the sizes each is scaled to: up and down alike, up one way and down the other, whole
# ratios (2 x 2 has its own rounding), single rows and columns, and shapes for which Pillow starts with rows.
SOURCES = [
    (37, 23, 1, [(18, 11), (53, 33), (61, 9), (11, 40), (1, 1), (37, 9)]),
    (30, 24, 3, [(15, 12), (10, 8), (6, 12), (29, 23), (44, 35), (30, 11)]),
    (19, 61, 3, [(8, 26), (13, 41), (24, 50), (5, 60)]),
    (28, 22, 4, [(14, 11), (9, 7), (43, 34), (17, 31)]),
    (1, 40, 3, [(1, 13), (6, 20)]),
    (3, 5, 4, [(9, 15), (2, 3)]),
    (147, 6, 1, [(3, 2), (49, 3)]),
]


def picture(random, width, height, channels):
    """Hard edges, noise, and zeros and full levels, so that filters overshoot and clip."""
    shape = (height, width, channels)
    levels = random.integers(0, 256, shape)
    blocks = random.choice([0, 255], (height // 5 + 1, width // 5 + 1, channels))
    blocks = blocks.repeat(5, axis=0).repeat(5, axis=1)[:height, :width]
    mixed = numpy.where(random.random(shape[:2] + (1,)) < 0.5, levels, blocks)
    mixed = mixed.astype(numpy.uint8)
    return mixed[:, :, 0].copy() if channels == 1 else mixed


def main():
    random = numpy.random.default_rng(20)
    for width, height, channels, sizes in SOURCES:
        source = picture(random, width, height, channels)
        name = f"source_{width}x{height}x{channels}"
        Image.fromarray(source).save(FOLDER / f"{name}.png", optimize=True)
        for size in sizes:
            results = {key: cv2.resize(source, size, interpolation=value) for key, value in OPENCV.items()}
            for key, value in PILLOW.items():
                results[key] = numpy.asarray(Image.fromarray(source).resize(size, value))
            for key, result in results.items():
                result = result.reshape((size[1], size[0]) + source.shape[2:])
                path = FOLDER / f"{name}.{key}.{size[0]}x{size[1]}.png"
                Image.fromarray(result).save(path, optimize=True)


if __name__ == "__main__":
    main()
