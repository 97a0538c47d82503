"""Writes buckets_more.json by running SimpleTuner's own code over sizes and settings.

    PYTHONPATH=/path/to/SimpleTuner python buckets_more.py

Needs what SimpleTuner's `training_sample.py` imports (torch, diffusers, trainingsample, ...). Each size goes through the
metadata scan, all of them in order, and then, with the metadata that the scan gave, through the pass that encodes:
row = [w, h, bucket_w, bucket_h, scaled_w, scaled_h, left, top] of that second pass, or [w, h, null, why].
"""
import json
import os
import random
from types import SimpleNamespace

os.environ["SIMPLETUNER_SKIP_TORCH"] = "1"
from simpletuner.helpers.data_backend.dataset_types import DatasetType
from simpletuner.helpers.image_manipulation.training_sample import TrainingSample
from simpletuner.helpers.metadata.backends.base import MetadataBackend
from simpletuner.helpers.training.state_tracker import StateTracker

HERE = os.path.dirname(os.path.abspath(__file__))
CENTRE = {"crop": True, "crop_style": "center"}
ASPECTS = [0.5, 0.67, 1.0, 1.33, 1.5, 1.78]

CONFIGS = [
    # name, alignment, settings; `minimum_*` and the like act in the metadata backend
    ("pixel-512-a8", 8, {"resolution": 512, "resolution_type": "pixel", "crop": False, "crop_style": "centre"}),
    ("pixel-1000-a64", 64, {"resolution": 1000, "resolution_type": "pixel", "crop": False, "crop_style": "corner"}),
    ("pixel-768.0-a32-preserve", 32, {"resolution": 768.0, "resolution_type": "pixel", "crop_aspect": "preserve", **CENTRE}),
    ("pixel-512-a64-square", 64, {"resolution": 512, "resolution_type": "pixel", "crop_aspect": "square", **CENTRE}),
    ("area-0.5-a8-preserve", 8, {"resolution": 0.5, "resolution_type": "area", "crop_aspect": "preserve", **CENTRE}),
    ("area-0.262144-a32", 32, {"resolution": 0.262144, "resolution_type": "area", "crop": False, "crop_style": "center"}),
    ("area-0.589824-a16-corner", 16, {"resolution": 0.589824, "resolution_type": "area", "crop": True, "crop_style": "corner", "crop_aspect": "preserve"}),
    ("area-1.048576-a64-closest", 64, {"resolution": 1.048576, "resolution_type": "area", "crop_aspect": "closest", "crop_aspect_buckets": ASPECTS, **CENTRE}),
    ("area-1.0-a16-closest", 16, {"resolution": 1.0, "resolution_type": "area", "crop_aspect": "closest", "crop_aspect_buckets": ASPECTS, **CENTRE}),
    ("pixel-512-a64-closest", 64, {"resolution": 512, "resolution_type": "pixel", "crop_aspect": "closest", "crop_aspect_buckets": ASPECTS, **CENTRE}),
    ("area-0.25-a64-square-downsample", 64, {"resolution": 0.25, "resolution_type": "area", "crop_aspect": "square", "maximum_image_size": 1.5, "target_downsample_size": 0.75, **CENTRE}),
    ("area-1.0-a16-preserve-downsample", 16, {"resolution": 1.0, "resolution_type": "area", "crop_aspect": "preserve", "maximum_image_size": 4.0, "target_downsample_size": 2.0, **CENTRE}),
    ("pixel-512-a64-preserve-downsample", 64, {"resolution": 512, "resolution_type": "pixel", "crop_aspect": "preserve", "maximum_image_size": 1536, "target_downsample_size": 1024, **CENTRE}),
    ("pixel-512-a64-minimum", 64, {"resolution": 512, "resolution_type": "pixel", "crop": False, "crop_style": "center", "minimum_image_size": 300}),
    ("area-0.25-a64-square-minimum", 64, {"resolution": 0.25, "resolution_type": "area", "crop_aspect": "square", "minimum_image_size": 0.25, **CENTRE}),
    ("area-1.0-a64-aspects", 64, {"resolution": 1.0, "resolution_type": "area", "crop": False, "crop_style": "center", "minimum_aspect_ratio": 0.5, "maximum_aspect_ratio": 1.75}),
]


def sizes():
    known = json.load(open(os.path.join(HERE, "buckets.json")))["configs"][0]["rows"]
    rng = random.Random(20261201)
    more = [(int(2 ** rng.uniform(4, 12)), int(2 ** rng.uniform(4, 12))) for _ in range(120)]
    # Nearly square, where sizes are corrected.
    more += [(base + dx, base + dy) for base in (500, 1000, 1022) for dx in (-4, 0, 3) for dy in (-3, 0, 5)]
    return [(row[0], row[1]) for row in known] + more


def sample(size, metadata):
    given = {"original_size": size, **(metadata or {})}
    one = TrainingSample(image=None, data_backend_id="set", image_metadata=given, image_path="x.png")
    before = {}
    crop = one.cropper.crop

    def watched(width, height):
        before["size"] = (one.cropper.intermediary_width, one.cropper.intermediary_height)
        return crop(width, height)

    one.cropper.crop = watched
    prepared = one.prepare()
    return prepared, before.get("size", prepared.target_size)


def backend(settings):
    return SimpleNamespace(
        id="set", dataset_config=settings, dataset_type=DatasetType.IMAGE, bucket_report=None,
        minimum_image_size=settings.get("minimum_image_size"), resolution_type=settings["resolution_type"],
        minimum_aspect_ratio=settings.get("minimum_aspect_ratio"), maximum_aspect_ratio=settings.get("maximum_aspect_ratio"),
        minimum_num_frames=None, maximum_num_frames=None,
    )


def kept(backend, prepared):
    backend.aspect_ratio_bucket_indices = {str(prepared.aspect_ratio): ["x.png"]}
    backend._iterate_buckets_with_progress = lambda _: list(backend.aspect_ratio_bucket_indices)
    MetadataBackend._enforce_min_aspect_ratio(backend)
    MetadataBackend._enforce_max_aspect_ratio(backend)
    return bool(backend.aspect_ratio_bucket_indices)


def rows(alignment, settings):
    StateTracker.get_args = classmethod(lambda cls: SimpleNamespace(aspect_bucket_alignment=alignment, aspect_bucket_rounding=2))
    StateTracker.get_data_backend_config = classmethod(lambda cls, *a, **k: settings)
    StateTracker.get_model = classmethod(lambda cls: None)
    StateTracker.get_webhook_handler = classmethod(lambda cls: None)
    StateTracker._save_to_disk = classmethod(lambda cls, *a: None)
    StateTracker.aspect_resolution_map = {}
    filters = backend(settings)
    scanned = []
    for size in sizes():
        if not MetadataBackend.meets_resolution_requirements(filters, image_metadata={"original_size": size}):
            scanned.append((size, None, "too small"))
            continue
        try:
            prepared, _ = sample(size, None)
        except Exception as error:
            scanned.append((size, None, f"{type(error).__name__}: {error}"))
            continue
        metadata = {key: getattr(prepared, key) for key in ("target_size", "intermediary_size", "crop_coordinates", "aspect_ratio")}
        scanned.append((size, metadata, None) if kept(filters, prepared) else (size, None, "aspect ratio"))
    out = []
    for size, metadata, why in scanned:
        if metadata is None:
            out.append([*size, None, why])
            continue
        prepared, scaled = sample(size, metadata)
        top, left = prepared.crop_coordinates
        out.append([int(v) for v in (*size, *prepared.target_size, *scaled, left, top)])
    return out


configs = [{"name": n, "align": a, "cfg": c, "rows": rows(a, c)} for n, a, c in CONFIGS]
with open(os.path.join(HERE, "buckets_more.json"), "w") as file:
    json.dump({"trainer": "SimpleTuner bc8e6ab7", "configs": configs}, file, separators=(",", ":"))
    file.write("\n")
