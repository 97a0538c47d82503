"""Asks SimpleTuner itself whether it would train from the latent caches of a dataset list, and whether they are right.

    python simpletuner_check.py --simpletuner DIR --family FAMILY --vae FILE --list multidatabackend.json [--record]

FAMILY is sd15, sdxl, sd3, flux, chroma, lumina2, z-image, flux2, flux2-klein-4b, flux2-klein-9b, qwen-image, krea2 or
wan21; the last six need a VAE with diffusers' names. Relative paths in the list are taken from its own folder. Needs a
checkout of bghira/SimpleTuner and torch, torchvision, diffusers >= 0.36, transformers, accelerate, safetensors, pillow,
numpy, tqdm, trainingsample 0.3.2, atomicwrites, opencv-python-headless.

The scan of pictures with its buckets, pixels, cache names, the rule by which it finds what is cached, loading, and
what a model's class does to latents are SimpleTuner's own code. Pictures go through it one at a time. Where `crop` is
off and crop_style `random`, the default, SimpleTuner cuts what stepping leaves over wherever a draw says; here it
cuts where its records say, else in the middle. Latents are recomputed from its pixels by diffusers' autoencoders with
the weights of `--vae`, in f32, as the posterior mean; SimpleTuner itself stores a random draw in most families. Where
it has recorded a dataset in its JSON files before, these are used; else it scans anew, into a temporary folder, or
with --record into the dataset's, as in training.

For each image one line: ACCEPTED, or REJECTED where SimpleTuner would encode it, then the largest difference beyond the
rounding of the stored dtype. Exit status 1 if anything is REJECTED, differs by more than 1e-3 or breaks a batch, or if
there is no image at all. An image that SimpleTuner leaves out must have no cache.
"""

import argparse
import importlib
import json
import logging
import os
import shutil
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import torch

from common import StandIns, autoencoder, own_function, posterior_means

TOLERANCE = 1e-3

# family: (module of helpers/models, class, SimpleTuner's model_family, alignment that the class sets, 64 otherwise)
FAMILIES = {
    "sd15": ("sd1x", "StableDiffusion1", "sd1x", 64),
    "sdxl": ("sdxl", "SDXL", "sdxl", 64),
    "sd3": ("sd3", "SD3", "sd3", 64),
    "flux": ("flux", "Flux", "flux", 64),
    "chroma": ("chroma", "Chroma", "chroma", 64),
    "lumina2": ("lumina2", "Lumina2", "lumina2", 64),
    "z-image": ("z_image", "ZImage", "z-image", 64),
    "flux2": ("flux2", "Flux2", "flux2", 16),
    "flux2-klein-4b": ("flux2", "Flux2", "flux2", 16),
    "flux2-klein-9b": ("flux2", "Flux2", "flux2", 16),
    "qwen-image": ("qwen_image", "QwenImage", "qwen_image", 64),
    "krea2": ("krea2", "Krea2", "krea2", 64),
    "wan21": ("wan", "Wan", "wan", 32),
}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--simpletuner", type=Path, required=True, help="checkout of bghira/SimpleTuner")
    parser.add_argument("--family", choices=sorted(FAMILIES), required=True)
    parser.add_argument("--vae", type=Path, required=True, help="safetensors file")
    parser.add_argument("--list", type=Path, required=True, help="multidatabackend.json")
    parser.add_argument("--record", action="store_true", help="leave SimpleTuner's records in the datasets' folders")
    return parser.parse_args()


def cut_without_draws():
    """Lets SimpleTuner cut where its records say, else in the middle, where it would draw."""
    from simpletuner.helpers.image_manipulation import cropping

    class Recorded(cropping.CenterCropping):
        def crop(self, width, height):
            top, left = (self.image_metadata or {}).get("crop_coordinates") or (None, None)
            if top is None:
                return super().crop(width, height)
            return self.image.crop((left, top, left + width, top + height)), (top, left)

    cropping.crop_handlers["random"] = Recorded


def model_of(family, vae):
    """SimpleTuner's own model class, with nothing loaded but the autoencoder."""
    module, name, *_ = FAMILIES[family]
    kind = getattr(importlib.import_module(f"simpletuner.helpers.models.{module}.model"), name)
    model = object.__new__(kind)
    model.__dict__.update(vae=vae, config=SimpleNamespace(model_flavour=None))
    model.get_vae = lambda: vae
    return model


class Dataset:
    """One entry of the list in SimpleTuner's own objects."""

    def own_resolution(self, entry):
        """SimpleTuner's first step with an entry: `pixel_area` becomes `area`."""
        from simpletuner.helpers.data_backend import dataset_types
        from simpletuner.helpers.training.state_tracker import StateTracker

        factory = Path(dataset_types.__file__).with_name("factory.py")
        convert = own_function(factory, "FactoryRegistry", "_handle_resolution_conversion", **vars(dataset_types))
        convert(SimpleNamespace(args=StateTracker.get_args()), entry)

    def __init__(self, entry, family, model, root, records, scratch):
        from simpletuner.helpers.caching.vae import VAECache
        from simpletuner.helpers.data_backend.config.image import ImageBackendConfig
        from simpletuner.helpers.data_backend.local import LocalDataBackend
        from simpletuner.helpers.metadata.backends.discovery import DiscoveryMetadataBackend
        from simpletuner.helpers.training.state_tracker import StateTracker

        self.tracker, self.model = StateTracker, model
        self.id = entry["id"]
        self.folder = os.path.abspath(root / entry["instance_data_dir"])
        cache = os.path.abspath(root / entry["cache_dir_vae"])
        entry = dict(entry)
        self.own_resolution(entry)
        resolved = ImageBackendConfig.from_dict(entry, vars(StateTracker.get_args()))
        config = {
            **entry,
            **{
                key: getattr(resolved, key)
                for key in (
                    "resolution",
                    "resolution_type",
                    "crop",
                    "crop_aspect",
                    "crop_style",
                    "maximum_image_size",
                    "minimum_image_size",
                    "target_downsample_size",
                )
            },
        }
        accelerator = SimpleNamespace(
            device=torch.device("cpu"),
            num_processes=1,
            process_index=0,
            is_main_process=True,
            is_local_main_process=True,
            wait_for_everyone=lambda: None,
        )
        self.storage = LocalDataBackend(accelerator, self.id, compress_cache=bool(entry.get("compress_cache", False)))
        StateTracker.set_data_backend_config(self.id, config)
        places = {name: os.path.join(self.folder, f"aspect_ratio_bucket_{name}") for name in ("indices", "metadata")}
        suffix = entry.get("cache_file_suffix", self.id)
        if records != "keep":
            for name, place in places.items():
                places[name] = str(scratch / f"{self.id}_{name}")
                if os.path.exists(f"{place}_{suffix}.json"):
                    shutil.copy(f"{place}_{suffix}.json", f"{places[name]}_{suffix}.json")
        self.metadata = DiscoveryMetadataBackend(
            id=self.id,
            instance_data_dir=self.folder,
            cache_file=places["indices"],
            metadata_file=places["metadata"],
            data_backend=self.storage,
            accelerator=accelerator,
            batch_size=int(entry.get("train_batch_size", 1)),
            resolution=config["resolution"],
            resolution_type=config["resolution_type"],
            minimum_image_size=config["minimum_image_size"],
            minimum_aspect_ratio=entry.get("minimum_aspect_ratio"),
            maximum_aspect_ratio=entry.get("maximum_aspect_ratio"),
            cache_file_suffix=suffix,
            repeats=entry.get("repeats", 0),
        )
        StateTracker.set_data_backend_config(self.id, config)
        common = dict(
            id=self.id,
            model=model,
            vae=model.vae,
            accelerator=accelerator,
            metadata_backend=self.metadata,
            instance_data_dir=self.folder,
            image_data_backend=self.storage,
        )
        # Its constructor makes the folder; where prebake wrote nothing, none must be left behind.
        existed = os.path.isdir(cache)
        self.cached = VAECache(cache_dir=cache, **common)
        if not existed:
            os.rmdir(cache)
        self.anew = VAECache(cache_dir=str(scratch / f"{self.id}_vae"), **common)
        StateTracker.register_data_backend(
            {
                "id": self.id,
                "dataset_type": "image",
                "metadata_backend": self.metadata,
                "data_backend": self.storage,
                "vaecache": self.cached,
                "config": config,
                "instance_data_dir": self.folder,
            }
        )

    def scan(self):
        """Its own scan: (images in buckets, images that it leaves out, those that it would encode)."""
        every = list(self.cached.discover_all_files())
        self.cached.build_vae_cache_filename_map(every)
        self.metadata.compute_aspect_ratio_bucket_indices()
        bucketed = [path for paths in self.metadata.aspect_ratio_bucket_indices.values() for path in paths]
        return bucketed, sorted(set(every) - set(bucketed)), set(self.cached.discover_unprocessed_files())

    def expected(self, path):
        """What SimpleTuner would cache for a picture that comes alone, in f32."""
        from simpletuner.helpers.caching.vae import prepare_sample

        image = self.storage.read_image(path)
        prepared, *_ = prepare_sample(image=image, data_backend_id=self.id, filepath=path, model=self.model)
        pixels = self.anew.transform_sample(prepared)
        with torch.no_grad():
            return self.anew.encode_images([pixels], [path], load_from_cache=False)[0].float()

    def check(self, path, unprocessed):
        """(accepted, difference, text)."""
        name = os.path.basename(self.cached.generate_vae_cache_filename(path)[0])
        if path in unprocessed:
            return False, float("nan"), f"{name}: no such file"
        stored = self.cached.retrieve_from_cache(path)
        expected = self.expected(path)
        if stored.shape != expected.shape:
            return True, float("inf"), f"shape {tuple(stored.shape)}, not {tuple(expected.shape)}"
        difference = (stored.float() - expected).abs()
        if stored.dtype != torch.float32:
            difference = (difference - torch.finfo(stored.dtype).eps / 2 * expected.abs()).clamp(min=0)
        return True, difference.max().item(), f"{tuple(stored.shape)} {stored.dtype}"

    def batches(self):
        """Every bucket through its own check of a batch; what broke."""
        from simpletuner.helpers.training.collate import check_latent_shapes

        broken = []
        for bucket, paths in self.metadata.aspect_ratio_bucket_indices.items():
            try:
                latents = [self.cached.retrieve_from_cache(path) for path in paths]
                for latent in latents:
                    if not torch.isfinite(latent).all():
                        raise ValueError("holds NaN or infinity")
                batch = [self.metadata.get_metadata_by_filepath(path) for path in paths]
                check_latent_shapes(latents, paths, self.id, batch)
            except Exception as error:
                broken.append(f"{self.id}, bucket {bucket}: {error}")
        return broken


def prepare(args, scratch):
    """Loads SimpleTuner's modules and sets what its trainer would have set."""
    os.environ.setdefault("SIMPLETUNER_LOG_LEVEL", "ERROR")
    sys.path.insert(0, str(args.simpletuner.resolve()))
    logging.disable(logging.WARNING)
    from simpletuner.helpers.training.state_tracker import StateTracker

    *_, family, alignment = FAMILIES[args.family]
    StateTracker.set_args(
        SimpleNamespace(
            output_dir=str(scratch),
            aspect_bucket_worker_count=1,
            enable_multiprocessing=False,
            aspect_bucket_alignment=alignment,
            aspect_bucket_rounding=2,
            model_family=family,
            model_type="lora",
            resolution=1024,
            resolution_type="pixel_area",
            disable_bucket_pruning=False,
            vae_cache_ondemand=False,
            caption_strategy="textfile",
            minimum_image_size=None,
            maximum_image_size=None,
            target_downsample_size=None,
            vae_dtype="fp32",
            cache_dir_vae=str(scratch),
            parquet_caption_column=None,
            parquet_filename_column=None,
            metadata_update_interval=3600,
            delete_problematic_images=False,
            delete_unwanted_images=False,
            controlnet=False,
            instance_prompt=None,
        )
    )
    StateTracker.set_model_family(family)
    StateTracker.set_accelerator(SimpleNamespace(device=torch.device("cpu")))
    StateTracker.get_weight_dtype = classmethod(lambda cls: torch.float32)


def main():
    args = parse_arguments()
    # Last, since what is installed is taken; its web server and webhooks are part of the checkout, so they come first.
    sys.meta_path.append(StandIns("peft", "optimum", "torchsde", "lycoris", "boto3", "bitsandbytes"))
    sys.meta_path.insert(0, StandIns("simpletuner.simpletuner_sdk", "simpletuner.helpers.webhooks.handler"))
    entries = json.loads(args.list.read_text())
    pictures = [
        e for e in entries if e.get("dataset_type", "image") == "image" and not e.get("disabled", e.get("disable"))
    ]
    images = rejected = wrong = left_out = 0
    largest, broken = 0.0, []
    with tempfile.TemporaryDirectory() as scratch:
        prepare(args, Path(scratch))
        posterior_means()
        if not args.record:
            cut_without_draws()
        model = model_of(args.family, autoencoder(args.family, args.vae.resolve()))
        model._cache_vae_dtype = lambda: torch.float32
        for entry in pictures:
            records = "keep" if args.record else "copy"
            dataset = Dataset(entry, args.family, model, args.list.resolve().parent, records, Path(scratch))
            dataset.cached._cache_vae_dtype = dataset.anew._cache_vae_dtype = lambda: torch.float32
            bucketed, without, unprocessed = dataset.scan()
            for path in bucketed:
                accepted, difference, text = dataset.check(path, unprocessed)
                images += 1
                rejected += not accepted
                # Written so that a NaN is wrong too.
                wrong += accepted and not difference <= TOLERANCE
                largest = max(largest, difference) if accepted else largest
                print(f"{'ACCEPTED' if accepted else 'REJECTED'}  {path}  {text}  beyond rounding {difference:.2g}")
            for path in without:
                cached = path not in unprocessed
                wrong += cached
                left_out += 1
                print(f"LEFT OUT  {path}{'  but has a cache' if cached else ''}")
            broken += dataset.batches()
    for text in broken:
        print(f"BROKEN    {text}")
    print(
        f"{images} images: {images - rejected} accepted, {rejected} rejected, {wrong} wrong, {left_out} left out, "
        f"{len(broken)} broken buckets, largest difference beyond rounding {largest:.2g}"
    )
    return int(not images or rejected > 0 or wrong > 0 or bool(broken))


if __name__ == "__main__":
    sys.exit(main())
