"""Makes pixels/: small pictures of many kinds, and what musubi-tuner's own code gives its encoder for each.

    python pixels.py CHECKOUT/src

Writes pixels/images/ with captions, pixels/dataset.toml, and pixels/expected/NAME.png: the arrays of
ImageDataset.retrieve_latent_cache_batches, cut to three channels as its encode_datasets does. Needs what
musubi_tuner.dataset imports: torch, safetensors, numpy, pillow, opencv-python-headless, av, voluptuous, toml.
"""

import shutil
import struct
import sys
import zlib
from pathlib import Path
from types import SimpleNamespace

import cv2
import numpy as np
from PIL import Image

sys.path.insert(0, sys.argv[1])
from musubi_tuner.dataset import config_utils

HERE = Path(__file__).parent / "pixels"
TOML = """[general]
resolution = [48, 32]
enable_bucket = true
caption_extension = ".txt"

[[datasets]]
image_directory = "images"
"""


def smooth(width, height, channels, top=255):
    """A picture with soft colours and hard edges."""
    y, x = np.mgrid[0:height, 0:width]
    waves = [np.sin(x / (5 + c) + c) * np.cos(y / (7 - c) - c) for c in range(channels)]
    picture = np.stack(waves, -1) * 0.4 + 0.5 + ((x // 9 + y // 11) % 2)[..., None] * 0.1
    return np.clip(picture * top, 0, top)


def eight(width, height, channels):
    return smooth(width, height, channels).astype(np.uint8).squeeze()


def sixteen(width, height, channels):
    return smooth(width, height, channels, 65535).astype(np.uint16).squeeze()


def gray_alpha_16(path, width, height):
    """A PNG of 16-bit gray with alpha, which neither Pillow nor OpenCV writes."""
    values = sixteen(width, height, 2).astype(">u2")
    rows = b"".join(b"\0" + values[y].tobytes() for y in range(height))
    header = struct.pack(">IIBBBBB", width, height, 16, 4, 0, 0, 0)
    chunk = lambda name, data: struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + body)


def write_images(folder):
    save = lambda name, array, **options: Image.fromarray(array).save(folder / name, **options)
    save("down.png", eight(66, 49, 3))
    save("up.png", eight(27, 21, 3))
    save("exact.png", eight(48, 32, 3))
    save("wide.png", eight(103, 19, 3))
    save("rgba-down.png", eight(66, 49, 4))
    save("rgba-up.png", eight(27, 21, 4))
    save("rgba-exact.png", eight(48, 32, 4))
    save("gray.png", eight(27, 49, 1))
    save("gray-alpha-up.png", eight(21, 27, 2))
    save("gray-alpha-down.png", eight(49, 66, 2))
    save("gray16.png", (sixteen(60, 45, 1) // 97).astype(np.uint16))
    cv2.imwrite(str(folder / "rgb16.png"), sixteen(60, 45, 3))
    cv2.imwrite(str(folder / "rgba16-up.png"), sixteen(25, 20, 4))
    gray_alpha_16(folder / "gray-alpha-16-up.png", 22, 20)
    gray_alpha_16(folder / "gray-alpha-16-down.png", 55, 45)
    palette = Image.fromarray(eight(60, 45, 3)).quantize(16)
    palette.save(folder / "palette.png")
    palette.save(folder / "palette-transparent.png", transparency=3)
    small = Image.fromarray(eight(25, 20, 3)).quantize(16)
    small.save(folder / "palette-many-alphas-up.png", transparency=bytes(range(0, 256, 16)))
    save("rgb-colour-key.png", eight(25, 20, 3) // 64 * 64, transparency=(64, 128, 128))
    save("gray-colour-key.png", eight(25, 20, 1) // 64 * 64, transparency=128)
    Image.fromarray(eight(60, 45, 1)).convert("1").save(folder / "bits.png")
    save("colour.JPG", eight(66, 49, 3), quality=90)
    save("gray.jpg", eight(66, 49, 1), quality=90)
    Image.fromarray(eight(66, 49, 4), "CMYK").save(folder / "cmyk.jpeg", quality=95)
    exif = Image.Exif()
    exif[0x0112] = 6
    save("rotated.jpg", eight(66, 49, 3), quality=90, exif=exif)
    save("lossless-alpha.webp", eight(27, 21, 4), lossless=True)
    save("plain.bmp", eight(31, 23, 3))


def main():
    shutil.rmtree(HERE, ignore_errors=True)
    images, expected = HERE / "images", HERE / "expected"
    images.mkdir(parents=True)
    expected.mkdir()
    write_images(images)
    # Two names that differ by extension alone would share a cache.
    (images / "gray.jpg").rename(images / "gray-photo.jpg")
    for image in list(images.iterdir()):
        image.with_suffix(".txt").write_text("a picture")
    (HERE / "dataset.toml").write_text(TOML)
    config = config_utils.load_user_config(str(HERE / "dataset.toml"))
    config["datasets"][0]["image_directory"] = str(images)
    generator = config_utils.BlueprintGenerator(config_utils.ConfigSanitizer())
    blueprint = generator.generate(config, SimpleNamespace(), architecture="zi")
    [dataset] = config_utils.generate_dataset_group_by_blueprint(blueprint.dataset_group).datasets
    for _, batch in dataset.retrieve_latent_cache_batches(1):
        for item in batch:
            Image.fromarray(item.content[..., :3].copy()).save(expected / f"{Path(item.item_key).name}.png")


if __name__ == "__main__":
    main()
