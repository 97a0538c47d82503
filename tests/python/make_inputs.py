"""Makes what `scripts/check-trainers.sh` checks the trainers with: pictures of every awkward kind, and tiny VAEs.

    python make_inputs.py OUT [SEED]      (needs numpy, pillow, torch, diffusers >= 0.36, safetensors)

`OUT/pictures` gets 69 captioned pictures: sizes from 20 pixels to 2000, strips, all EXIF orientations, gray, palette,
transparency of every sort, 16 bits, CMYK, names that begin with one another, sub-folders. Other seeds give other
pictures. `OUT/vae` gets the networks of `tests/data/vae/networks.json` under diffusers' and their original names.
"""

import json
import sys
from pathlib import Path

import numpy as np
from PIL import Image
from safetensors.torch import save_file

DATA = Path(__file__).resolve().parents[1] / "data/vae"
SIZES = [(512, 512), (641, 479), (480, 853), (1200, 300), (300, 1200), (333, 777), (1023, 1025), (257, 255), (2000, 250)]


class Pictures:
    def __init__(self, folder, seed):
        self.folder, self.random = folder, np.random.default_rng(seed)
        (folder / "deep/er").mkdir(parents=True)

    def planes(self, width, height, channels=3):
        """Waves under noise, with one flat block: something for every filter."""
        y, x = np.mgrid[0:height, 0:width]
        across, down, phase = self.random.uniform(10, 60, 3)
        waves = [127 + 120 * np.sin((x + c * 31) / across + phase) * np.cos(y / down + c) for c in range(channels)]
        planes = np.stack(waves, -1) + self.random.normal(0, 9, (height, width, channels))
        start = self.random.integers(0, min(width, height) // 2 + 1)
        block = slice(start, start + max(1, height // 4)), slice(start, start + max(1, width // 3))
        planes[block] = self.random.uniform(0, 255, channels)
        return planes.clip(0, 255).astype(np.uint8)

    def image(self, width, height, channels=3):
        return Image.fromarray(self.planes(width, height, channels))

    def save(self, name, image, **options):
        path = self.folder / name
        image.save(path, **options)
        path.with_suffix(".txt").write_text(f"a picture, {name}")

    def sizes(self):
        for number, (width, height) in enumerate(SIZES):
            self.save(f"plain{number}.png", self.image(width, height))
            quality = int(self.random.integers(60, 98))
            self.save(f"photo{number}.jpg", self.image(width, height), quality=quality, subsampling=number % 3)
        for number in (1, 10, 100):
            self.save(f"img{number}.png", self.image(300 + number, 500 - number))
        for name, width, height in [("tiny.png", 20, 31), ("tiny2.jpg", 64, 60), ("narrow.png", 90, 1400)]:
            self.save(name, self.image(width, height))
        for number in range(16):
            width, height = map(int, self.random.integers(200, 1100, 2))
            self.save(f"random{number}.{'png' if number % 2 else 'jpg'}", self.image(width, height))

    def turned(self):
        exif = Image.Exif()
        for orientation in range(1, 9):
            exif[0x0112] = orientation
            self.save(f"turned{orientation}.jpg", self.image(640, 400), exif=exif, quality=92)
        exif[0x0112] = 6
        self.save("turnedpng.png", self.image(500, 300), exif=exif)
        self.save("turnedwebp.webp", self.image(500, 301), exif=exif, lossless=True)

    def modes(self):
        self.save("rgba.png", self.image(400, 500, 4))
        self.save("gray_alpha.png", Image.fromarray(np.ascontiguousarray(self.planes(400, 500, 2))))
        gray = Image.fromarray(self.planes(420, 500)[..., 0])
        self.save("gray.png", gray)
        self.save("gray.with.dots.jpg", gray)
        self.save("one_bit.png", gray.convert("1"))
        self.save("palette.png", self.image(500, 400).quantize(77))
        self.save("palette_trns.png", self.image(500, 410).quantize(50), transparency=3)
        self.save("rgb_trns.png", self.image(480, 410), transparency=(10, 20, 30))
        self.save("gray16.png", Image.fromarray(self.planes(333, 444)[..., 0].astype(np.uint16) * 257))
        self.save("cmyk.jpg", self.image(400, 401).convert("CMYK"), quality=90)
        self.save("progressive.jpg", self.image(612, 401), progressive=True)

    def formats(self):
        self.save("lossy.webp", self.image(499, 401), quality=80)
        self.save("lossless.webp", self.image(499, 402), lossless=True)
        self.save("alpha.webp", self.image(455, 402, 4), lossless=True)
        self.save("plain.bmp", self.image(477, 403))
        self.save("UPPER.JPG", self.image(400, 300), quality=88)
        self.save("deep/a b (1).png", self.image(345, 456))
        self.save("deep/er/ünï.jpg", self.image(456, 345))
        self.save("deep/er/x.y.z.png", self.image(350, 350))


def vaes(folder):
    sys.path.insert(0, str(DATA))
    from networks import values

    folder.mkdir(parents=True)
    for network, rows in json.loads((DATA / "networks.json").read_text()).items():
        diffusers, original = {}, {}
        for name, shape, other, other_shape in rows:
            diffusers[name] = values(name, tuple(shape)).float().contiguous()
            original[other] = diffusers[name].reshape(other_shape).contiguous()
        save_file(diffusers, folder / f"{network}_diffusers.safetensors")
        save_file(original, folder / f"{network}_original.safetensors")


def main(out, seed="1"):
    pictures = Pictures(Path(out) / "pictures", int(seed))
    for kind in (pictures.sizes, pictures.turned, pictures.modes, pictures.formats):
        kind()
    vaes(Path(out) / "vae")


if __name__ == "__main__":
    main(*sys.argv[1:])
