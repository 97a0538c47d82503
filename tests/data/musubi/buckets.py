"""Makes buckets.json: musubi-tuner's own buckets and scaled sizes for many picture sizes under several settings.

    python buckets.py CHECKOUT/src SIZES.json > buckets.json

SIZES.json is a list of [width, height]; without it the sizes of the present buckets.json are taken again. Needs what
musubi_tuner.dataset.bucket imports: torch, safetensors, numpy, pillow, opencv-python-headless, av.

A row is [bucket width, bucket height, scaled width, scaled height], or null where the trainer raises or keeps nothing
of the picture. No pixel is computed: the two resizers only note the size that they are asked for.
"""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np

sys.path.insert(0, sys.argv[1])
from musubi_tuner.dataset import media_utils
from musubi_tuner.dataset.bucket import BucketSelector

CONFIGS = [
    ([1024, 1024], True, False, "zi"),
    ([1024, 1024], True, True, "zi"),
    ([512, 512], True, False, "wan"),
    ([960, 544], True, False, "qi"),
    ([960, 544], True, True, "kr2"),
    ([960, 544], False, True, "f2d"),
    ([1000, 1000], False, False, "zi"),
    ([1000, 1000], True, False, "f2k4b"),
    ([40, 40], True, True, "f2k9b"),
    ([1328, 1328], True, True, "qi"),
    ([768, 1344], True, False, "zi"),
    ([1024, 1024], True, False, "ho1"),
]


def blank(width, height):
    return np.broadcast_to(np.uint8(0), (height, width, 3))


class Noting:
    """Stands in for both resizers: notes the size asked for and gives a blank picture of it."""

    def __init__(self):
        self.asked = None

    def resize(self, *arguments, **_options):
        size = next(argument for argument in arguments if isinstance(argument, tuple))
        if min(size) < 1:
            raise ValueError("an empty size")
        self.asked = size
        return blank(*size)


def row(selector, width, height):
    noting = Noting()
    media_utils.np = SimpleNamespace(ndarray=np.ndarray, array=lambda picture: picture)
    media_utils.cv2.resize = noting.resize
    media_utils.Image.fromarray = lambda _array: noting
    try:
        bucket = selector.get_bucket_resolution((width, height))
        kept = media_utils.resize_image_to_bucket(blank(width, height), bucket)
    except (ValueError, ZeroDivisionError):
        return None
    return [*bucket, *(noting.asked or (width, height))] if kept.shape == (bucket[1], bucket[0], 3) and kept.size else None


def main():
    here = Path(__file__).with_name("buckets.json")
    sizes = json.loads(Path(sys.argv[2]).read_text()) if len(sys.argv) > 2 else json.loads(here.read_text())["sizes"]
    configs = []
    for resolution, buckets, no_upscale, architecture in CONFIGS:
        selector = BucketSelector(tuple(resolution), buckets, no_upscale, architecture)
        rows = [row(selector, *size) for size in sizes]
        config = {"resolution": resolution, "enable_bucket": buckets, "bucket_no_upscale": no_upscale, "rows": rows}
        configs.append({**config, "architecture": architecture, "step": selector.reso_steps})
    json.dump({"trainer": "musubi-tuner 30c658c4", "sizes": sizes, "configs": configs}, sys.stdout, separators=(",", ":"))
    print()


if __name__ == "__main__":
    main()
