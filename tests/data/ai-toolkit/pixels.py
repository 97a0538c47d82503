"""Makes pixels/: pictures with each EXIF orientation, and what ai-toolkit's own code gives its encoder.

    python pixels.py CHECKOUT      (needs what tests/python/ai_toolkit_check.py needs)

Writes pixels/images/, and pixels/expected/NAME.png for these and for the pictures of ../musubi/pixels/images that
ai-toolkit lists, at resolution 64 in steps of 16 (arch sd1).
"""

import shutil
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from PIL import Image

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "python"))
from ai_toolkit_check import ARCHS, file_items


def write_images(folder):
    y, x = np.mgrid[0:53, 0:91]
    planes = [127 + 120 * np.sin(x / 9 + c) * np.cos(y / 7 - c) for c in range(3)]
    picture = Image.fromarray(np.stack(planes, -1).astype(np.uint8))
    exif = Image.Exif()
    for orientation in range(2, 9):
        exif[0x0112] = orientation
        picture.save(folder / f"turned{orientation}.png", exif=exif)


def main():
    images, expected = HERE / "pixels/images", HERE / "pixels/expected"
    shutil.rmtree(HERE / "pixels", ignore_errors=True)
    images.mkdir(parents=True)
    expected.mkdir()
    write_images(images)
    _, latent_space, step, *_ = ARCHS["sd1"]
    with tempfile.TemporaryDirectory() as scratch:
        for source in (images, HERE.parent / "musubi/pixels/images"):
            shutil.copytree(source, scratch, dirs_exist_ok=True)
        args = SimpleNamespace(ai_toolkit=Path(sys.argv[1]), folder=Path(scratch), resolution=64, flip_x=False)
        items, transform = file_items(args, step, latent_space)
        for item in items:
            item.load_and_process_image(transform, only_load_latents=True)
            levels = ((item.tensor + 1) * 127.5).round().to(torch.uint8)
            Image.fromarray(levels.permute(1, 2, 0).numpy()).save(expected / f"{Path(item.path).name}.png")
    print(len(items))


if __name__ == "__main__":
    main()
