"""Asks musubi-tuner itself whether it would train from the latent caches of a dataset, and whether they are right.

    python musubi_check.py --musubi-tuner DIR --vae FILE --config dataset.toml

For Z-Image. Relative paths in the description are taken from its own folder. Needs a checkout of kohya-ss/musubi-tuner
and what its dataset code imports:

    pip install torch torchvision numpy pillow opencv-python-headless safetensors voluptuous toml av einops tqdm \\
        accelerate diffusers transformers

Description, images, buckets, pixels, cache names, the rule of --skip_existing, the autoencoder, the encoding step, the
writing of caches and the loader of batches are musubi-tuner's own code. What it would cache is written to a temporary
folder and held against what lies there; text caches, without which it leaves images out, are made up in another.
Nothing is written to, or removed from, the dataset.

For each image one line: ACCEPTED, or REJECTED where musubi-tuner would encode it, then what differs. Exit status 1 if
anything is REJECTED, differs by more than 1e-3 or breaks a batch, if the cache folder holds files that no image has
(musubi-tuner trains on them), or if there is no image at all.
"""

import argparse
import copy
import logging
import os
import re
import sys
import tempfile
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import torch
from safetensors import safe_open

TOLERANCE = 1e-3


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--musubi-tuner", type=Path, required=True, help="checkout of kohya-ss/musubi-tuner")
    parser.add_argument("--vae", type=Path, required=True, help="safetensors file with an encoder under diffusers' names")
    parser.add_argument("--config", type=Path, required=True, help="musubi-tuner dataset_config, TOML or JSON")
    return parser.parse_args()


def read_encoder(path):
    with safe_open(path, framework="pt") as file:
        return {key: file.get_tensor(key).float() for key in file.keys() if key.startswith(("encoder.", "quant_conv."))}


def read_file(path):
    """(tensors by name, metadata without prebake's receipt) of a cache."""
    with safe_open(path, framework="pt") as file:
        metadata = {key: text for key, text in (file.metadata() or {}).items() if key != "prebake_receipt"}
        return {key: file.get_tensor(key) for key in file.keys()}, metadata


class Trainer:
    """musubi-tuner's own modules, loaded from its checkout and used as its Z-Image scripts do."""

    def __init__(self, root):
        sys.path.insert(0, str(root / "src"))
        from musubi_tuner import cache_latents, zimage_cache_latents
        from musubi_tuner.dataset import cache_io, config_utils
        from musubi_tuner.dataset.architectures import ARCHITECTURE_Z_IMAGE
        from musubi_tuner.zimage.zimage_autoencoder import AutoencoderKL

        logging.disable(logging.INFO)
        self.cache_latents, self.script, self.cache_io = cache_latents, zimage_cache_latents, cache_io
        self.config_utils, self.architecture, self.autoencoder = config_utils, ARCHITECTURE_Z_IMAGE, AutoencoderKL

    def datasets(self, config):
        """The datasets of a description, as its caching scripts build them without options."""
        utils = self.config_utils
        generator = utils.BlueprintGenerator(utils.ConfigSanitizer())
        blueprint = generator.generate(utils.load_user_config(str(config)), SimpleNamespace(), architecture=self.architecture)
        return utils.generate_dataset_group_by_blueprint(blueprint.dataset_group).datasets

    def load_vae(self, path):
        """Its autoencoder at the width and depth found in the file, in f32; the decoder is left out."""
        state = read_encoder(path)
        blocks = [re.match(r"encoder\.down_blocks\.(\d+)\.resnets\.(\d+)\.conv1\.weight", key) for key in state]
        blocks = [(int(found[1]), int(found[2])) for found in blocks if found]
        levels, layers = max(level for level, _ in blocks) + 1, max(layer for _, layer in blocks) + 1
        vae = self.autoencoder(
            block_out_channels=[state[f"encoder.down_blocks.{n}.resnets.0.conv1.weight"].shape[0] for n in range(levels)],
            down_block_types=("DownEncoderBlock2D",) * levels,
            up_block_types=("UpDecoderBlock2D",) * levels,
            layers_per_block=layers,
            latent_channels=state["encoder.conv_out.weight"].shape[0] // 2,
            norm_num_groups=32,
            use_quant_conv="quant_conv.weight" in state,
            use_post_quant_conv=False,
            mid_block_add_attention=True,
        )
        absent = [key for key in vae.load_state_dict(state, strict=False).missing_keys if key.startswith("encoder.")]
        if absent:
            sys.exit(f"{path} lacks {len(absent)} encoder weights, such as {min(absent)}")
        return vae.eval()

    def wants_to_encode(self, dataset):
        """Caches that its script, run with --skip_existing --keep_cache, would make."""
        wanted = set()
        options = SimpleNamespace(num_workers=1, skip_existing=True, keep_cache=True, batch_size=None)
        encode = lambda batch: wanted.update(item.latent_cache_path for item in batch)
        self.cache_latents.encode_datasets([dataset], encode, options)
        return wanted

    def encode(self, vae, item, folder):
        """What its script writes for an item, written to `folder`."""
        item = copy.copy(item)
        item.latent_cache_path = os.path.join(folder, os.path.basename(item.latent_cache_path))
        self.script.encode_and_save_batch(vae, [item])
        return read_file(item.latent_cache_path)


def compare(path, expected):
    """(largest difference, problems) of a cache against what the trainer writes for the same image."""
    (tensors, metadata), (wanted, wanted_metadata) = read_file(path), expected
    problems, largest = [], 0.0
    if metadata != wanted_metadata:
        problems.append(f"metadata is {metadata}, not {wanted_metadata}")
    if tensors.keys() != wanted.keys():
        return float("nan"), problems + [f"holds {sorted(tensors)}, not {sorted(wanted)}"]
    for name, tensor in tensors.items():
        other = wanted[name]
        if tensor.shape != other.shape or tensor.dtype != other.dtype:
            problems.append(f"{name} is {tensor.dtype} {tuple(tensor.shape)}, not {other.dtype} {tuple(other.shape)}")
            continue
        difference = float((tensor.double() - other.double()).abs().max())
        largest = max(largest, difference)
        # Written so that a NaN is a problem too.
        if not difference <= TOLERANCE:
            problems.append(f"{name} differs by {difference:.3g}")
    return largest, problems


def check_images(trainer, vae, dataset):
    """Prints one line an image; counts, with the largest difference under "largest"."""
    found, rejected = Counter(), trainer.wants_to_encode(dataset)
    largest, paths = 0.0, set()
    for _, batch in dataset.retrieve_latent_cache_batches(1):
        for item in batch:
            found["images"] += 1
            path = item.latent_cache_path
            if path in paths:
                found["wrong"] += 1
                print(f"PROBLEM   {item.item_key}: shares {path} with another image")
            paths.add(path)
            if path in rejected:
                found["rejected"] += 1
                print(f"REJECTED  {item.item_key}: no {path}")
                continue
            with tempfile.TemporaryDirectory() as folder:
                difference, problems = compare(path, trainer.encode(vae, item, folder))
            largest = max(largest, difference)
            found["wrong"] += bool(problems)
            width, height = item.bucket_size
            print(f"ACCEPTED  {path}  bucket {width}x{height}  max |cache - trainer's| {difference:.2g}")
            for problem in problems:
                print(f"PROBLEM   {path}: {problem}")
    for path in sorted(set(map(os.path.normpath, dataset.get_all_latent_cache_files())) - set(map(os.path.normpath, paths))):
        found["wrong"] += 1
        print(f"PROBLEM   {path}: is no image's, and would be trained on")
    return found, largest


def check_batches(trainer, dataset, folder):
    """Fetches every batch through the trainer's loader, with made-up text caches beside links to the caches."""
    found = Counter()
    for path in dataset.get_all_latent_cache_files():
        os.symlink(os.path.abspath(path), os.path.join(folder, os.path.basename(path)))
        stem = "_".join(os.path.basename(path).split("_")[:-2])
        text = SimpleNamespace(item_key=stem, caption="", text_encoder_output_cache_path=None)
        text.text_encoder_output_cache_path = os.path.join(folder, f"{stem}_{trainer.architecture}_te.safetensors")
        trainer.cache_io.save_text_encoder_output_cache_z_image(text, torch.zeros(3, 8, dtype=torch.bfloat16))
    dataset.cache_directory = folder
    dataset.prepare_for_training()
    manager = dataset.batch_manager
    for index in range(len(manager)):
        found["batches"] += 1
        width, height = manager.bucket_batch_indices[index][0][:2]
        try:
            latents = manager[index]["latents"]
            if tuple(latents.shape[-2:]) != (height // 8, width // 8):
                raise ValueError(f"latents {tuple(latents.shape)} in bucket {width}x{height}")
            if not torch.isfinite(latents).all():
                raise ValueError(f"latents that are not finite in bucket {width}x{height}")
            found["samples"] += len(latents)
        except Exception as error:
            found["broken"] += 1
            print(f"PROBLEM   batch {index}: {type(error).__name__}: {error}")
    return found


def main():
    args = parse_arguments()
    config, vae_path = args.config.resolve(), args.vae.resolve()
    trainer = Trainer(args.musubi_tuner.resolve())
    vae = trainer.load_vae(vae_path)
    os.chdir(config.parent)
    total, largest = Counter(), 0.0
    for dataset in trainer.datasets(config):
        found, difference = check_images(trainer, vae, dataset)
        total.update(found)
        largest = max(largest, difference)
        with tempfile.TemporaryDirectory() as folder:
            total.update(check_batches(trainer, dataset, folder))
    print(f"{total['images']} images: {total['rejected']} rejected, {total['wrong']} problems, largest difference {largest:.3g}")
    print(f"{total['batches']} batches with {total['samples']} samples, {total['broken']} broken")
    return int(total["images"] == 0 or any(total[name] for name in ("rejected", "wrong", "broken")))


if __name__ == "__main__":
    sys.exit(main())
