"""Makes the pictures here and what SimpleTuner (bc8e6ab7) hands to its VAE for them, one picture at a time.

    PYTHONPATH=/path/to/SimpleTuner python make.py      (also needs torch, diffusers, Pillow, trainingsample 0.3.2)

`set/` holds the pictures, NAME.json a dataset list as the trainer reads it, NAME/ its pictures after scaling and cropping:
each goes through the metadata scan and then, with the metadata that the scan gave, through the pass that encodes.
The alignment is 16 pixels.
"""
import json
import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from PIL import Image

os.environ["SIMPLETUNER_SKIP_TORCH"] = "1"
from simpletuner.helpers.image_manipulation.load import load_image
from simpletuner.helpers.image_manipulation.training_sample import TrainingSample
from simpletuner.helpers.training.state_tracker import StateTracker

HERE = Path(__file__).parent
ALIGNMENT = 16
LISTS = {
    "stepped": {"resolution": 32, "resolution_type": "pixel", "crop": False, "crop_style": "center"},
    "square": {"resolution": 48, "resolution_type": "pixel_area", "crop": True, "crop_style": "center", "crop_aspect": "square"},
    "corner": {"resolution": 0.002, "resolution_type": "area", "crop": True, "crop_style": "corner", "crop_aspect": "preserve"},
}


def pictures():
    y, x = np.mgrid[0:51, 0:77]
    planes = [(x * 3 + y * 2) % 256, (x * y // 3) % 256, 127 + 120 * np.sin(x / 3) * np.cos(y / 4), (x * 5) % 256]
    rgba = np.stack(planes, -1).astype(np.uint8)
    colour = Image.fromarray(rgba[..., :3])
    exif = Image.Exif()
    exif[0x0112] = 6
    yield "colour.png", colour, {}
    yield "tall.webp", Image.fromarray(rgba[:, :19, :3]), {"lossless": True}
    yield "wide.bmp", Image.fromarray(rgba[:22, :, :3]), {}
    yield "alpha.png", Image.fromarray(rgba), {}
    yield "gray.png", Image.fromarray(rgba[..., 2]), {}
    yield "gray_alpha.png", Image.fromarray(np.ascontiguousarray(rgba[..., 2:])), {}
    yield "palette.png", colour.quantize(60), {}
    yield "gray16.png", Image.fromarray((x * 811 + y * 77).astype(np.uint16)), {}
    yield "turned.jpg", colour, {"quality": 90, "exif": exif}


def settings_of(entry):
    """As the trainer resolves them (data_backend/factory.py, _handle_resolution_conversion)."""
    if entry["resolution_type"] == "pixel_area":
        return {**entry, "resolution_type": "area", "resolution": entry["resolution"] ** 2 / 1000**2}
    return entry


def sample(file, metadata):
    image = load_image(file.read_bytes())
    given = {"original_size": image.size, **(metadata or {})}
    return TrainingSample(image=image, data_backend_id="set", image_metadata=given, image_path=str(file)).prepare()


def main():
    (HERE / "set").mkdir(exist_ok=True)
    for name, picture, options in pictures():
        picture.save(HERE / "set" / name, **options)
    StateTracker.get_args = classmethod(lambda cls: SimpleNamespace(aspect_bucket_alignment=ALIGNMENT, aspect_bucket_rounding=2))
    StateTracker.get_model = classmethod(lambda cls: None)
    StateTracker.get_webhook_handler = classmethod(lambda cls: None)
    StateTracker._save_to_disk = classmethod(lambda cls, *a: None)
    files = sorted((HERE / "set").iterdir())
    for name, entry in LISTS.items():
        entry = {"id": name, "type": "local", "instance_data_dir": "set", "cache_dir_vae": "cache", **entry}
        (HERE / f"{name}.json").write_text(json.dumps([entry], indent=1) + "\n")
        (HERE / name).mkdir(exist_ok=True)
        StateTracker.get_data_backend_config = classmethod(lambda cls, *a, _entry=settings_of(entry), **k: _entry)
        StateTracker.aspect_resolution_map = {}
        scanned = [sample(file, None) for file in files]
        for file, first in zip(files, scanned):
            keys = ("target_size", "intermediary_size", "crop_coordinates", "aspect_ratio")
            prepared = sample(file, {key: getattr(first, key) for key in keys})
            prepared.image.save(HERE / name / f"{file.name}.png", optimize=True)


main()
