"""Asks musubi-tuner itself whether it would train from the latent caches of a dataset, and whether they are right.

    python musubi_check.py --musubi-tuner DIR --family FAMILY --vae FILE --config dataset.toml

FAMILY is z-image, flux2, flux2-klein-4b, flux2-klein-9b, qwen-image, krea2 or wan21. Relative paths in the description
are taken from its own folder. Needs a checkout of kohya-ss/musubi-tuner and what its dataset code imports:

    pip install torch torchvision numpy pillow opencv-python-headless safetensors voluptuous toml av einops tqdm \\
        accelerate diffusers transformers easydict ftfy

Description, images, buckets, pixels, cache names, the rule of --skip_existing, the autoencoder, the encoding step, the
writing of caches and the loader of batches are musubi-tuner's own code. What it would cache is written to a temporary
folder in f32 and held against what lies there, give or take bf16's rounding for Wan; text caches, without which it
leaves images out, are made up in another. Nothing is written to, or removed from, the dataset.

For each image one line: ACCEPTED, or REJECTED where musubi-tuner would encode it, then what differs. Exit status 1 if
anything is REJECTED, differs by more than 1e-3 or breaks a batch, if the cache folder holds files that no image has
(musubi-tuner trains on them), or if there is no image at all.
"""

import argparse
import contextlib
import copy
import importlib
import logging
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import torch
from safetensors import safe_open
from safetensors.torch import load_file

from common import filled, widths

TOLERANCE = 1e-3


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--musubi-tuner", type=Path, required=True, help="checkout of kohya-ss/musubi-tuner")
    parser.add_argument("--family", choices=sorted(FAMILIES), required=True)
    parser.add_argument("--vae", type=Path, required=True, help="safetensors file, with the names that musubi-tuner reads")
    parser.add_argument("--config", type=Path, required=True, help="musubi-tuner dataset_config, TOML or JSON")
    return parser.parse_args()


def read_file(path):
    """(tensors by name, metadata without prebake's receipt) of a cache."""
    with safe_open(path, framework="pt") as file:
        metadata = {key: text for key, text in (file.metadata() or {}).items() if key != "prebake_receipt"}
        return {key: file.get_tensor(key) for key in file.keys()}, metadata


class ZImage:
    script, save_text, text_shape = "zimage_cache_latents", "save_text_encoder_output_cache_z_image", (3, 8)

    def __init__(self, name):
        from musubi_tuner.dataset import architectures

        self.architecture = architectures.ARCHITECTURE_Z_IMAGE

    def load_vae(self, state):
        from musubi_tuner.zimage.zimage_autoencoder import AutoencoderKL

        blocks = widths(state, r"encoder\.down_blocks\.(\d+)\.resnets\.0\.conv1\.weight")
        vae = AutoencoderKL(
            block_out_channels=blocks,
            down_block_types=("DownEncoderBlock2D",) * len(blocks),
            up_block_types=("UpDecoderBlock2D",) * len(blocks),
            layers_per_block=len(widths(state, r"encoder\.down_blocks\.0\.resnets\.(\d+)\.conv1\.weight")),
            latent_channels=len(state["encoder.conv_out.weight"]) // 2,
            norm_num_groups=32,
            use_quant_conv="quant_conv.weight" in state,
            use_post_quant_conv=False,
            mid_block_add_attention=True,
        )
        return filled(vae, state, ("encoder.", "quant_conv."))

    def save(self, script, vae, item):
        script.encode_and_save_batch(vae, [item])


class Flux2:
    script, save_text, text_shape = "flux_2_cache_latents", "save_text_encoder_output_cache_flux_2", (3, 8)

    def __init__(self, name):
        from musubi_tuner.flux_2 import flux2_utils

        info = flux2_utils.FLUX2_MODEL_INFO[name.removeprefix("flux2-").replace("flux2", "dev")]
        self.architecture, self.full = info.architecture, info.architecture_full

    def load_vae(self, state):
        from musubi_tuner.flux_2 import flux2_models

        blocks = widths(state, r"encoder\.down\.(\d+)\.block\.0\.conv1\.weight")
        layers = len(widths(state, r"encoder\.down\.0\.block\.(\d+)\.conv1\.weight"))
        multiples = [width // blocks[0] for width in blocks]
        size = flux2_models.AutoEncoderParams(ch=blocks[0], ch_mult=multiples, num_res_blocks=layers)
        return filled(flux2_models.AutoEncoder(size), state, ("encoder.", "bn.running"))

    def save(self, script, vae, item):
        script.encode_and_save_batch(vae, [item], self.full)


class QwenImage:
    script, save_text, text_shape = "qwen_image_cache_latents", "save_text_encoder_output_cache_qwen_image", (3, 8)
    rest = (False,)

    def __init__(self, name):
        from musubi_tuner.dataset import architectures

        self.architecture = architectures.ARCHITECTURE_QWEN_IMAGE

    def load_vae(self, state):
        from musubi_tuner.qwen_image import qwen_image_autoencoder_kl, qwen_image_utils

        state = qwen_image_utils.convert_comfyui_state_dict(state)
        vae = qwen_image_autoencoder_kl.AutoencoderKLQwenImage(base_dim=len(state["encoder.conv_in.weight"]))
        return filled(vae, state, ("encoder.", "quant_conv."))

    def save(self, script, vae, item):
        script.encode_and_save_batch(vae, [item], *self.rest)


class Krea2(QwenImage):
    script, save_text, text_shape = "krea2_cache_latents", "save_text_encoder_output_cache_krea2", (3, 2, 8)
    rest = ()

    def __init__(self, name):
        from musubi_tuner.dataset import architectures

        self.architecture = architectures.ARCHITECTURE_KREA2


class Wan21:
    script, save_text, text_shape = "wan_cache_latents", "save_text_encoder_output_cache_wan", (3, 8)

    def __init__(self, name):
        from musubi_tuner.dataset import architectures

        self.architecture = architectures.ARCHITECTURE_WAN
        if not torch.cuda.is_available():
            torch.cuda.current_device = lambda: 0  # asked for as its text encoder is imported, which is not used here

    def load_vae(self, state):
        from musubi_tuner.wan.modules import vae as wan

        dim = len(state["encoder.conv1.weight"])
        build = lambda pretrained_path, z_dim: filled(
            wan.WanVAE_(dim=dim, z_dim=z_dim, dim_mult=[1, 2, 4, 4], temperal_downsample=[False, True, True]),
            state,
            ("encoder.", "conv1."),
        )
        wan._video_vae = build  # WanVAE itself knows the released width only
        return wan.WanVAE(device=torch.device("cpu"), dtype=torch.float32)

    def save(self, script, vae, item):
        script.encode_and_save_batch(vae, None, False, [item])


FAMILIES = {
    "z-image": ZImage,
    "flux2": Flux2,
    "flux2-klein-4b": Flux2,
    "flux2-klein-9b": Flux2,
    "qwen-image": QwenImage,
    "krea2": Krea2,
    "wan21": Wan21,
}


class Trainer:
    """musubi-tuner's own modules, loaded from its checkout and used as its caching scripts do."""

    def __init__(self, root, family):
        sys.path.insert(0, str(root / "src"))
        from musubi_tuner import cache_latents
        from musubi_tuner.dataset import cache_io, config_utils

        logging.disable(logging.INFO)
        self.family = FAMILIES[family](family)
        self.script = importlib.import_module(f"musubi_tuner.{self.family.script}")
        self.cache_latents, self.cache_io, self.config_utils = cache_latents, cache_io, config_utils
        self.architecture = self.family.architecture
        self.save_text = getattr(cache_io, self.family.save_text)

    def datasets(self, config):
        """The datasets of a description, as its caching scripts build them without options."""
        utils = self.config_utils
        generator = utils.BlueprintGenerator(utils.ConfigSanitizer())
        blueprint = generator.generate(utils.load_user_config(str(config)), SimpleNamespace(), architecture=self.architecture)
        return utils.generate_dataset_group_by_blueprint(blueprint.dataset_group).datasets

    def load_vae(self, path):
        """Its autoencoder at the width and depth found in the file, in f32; the decoder stays random."""
        vae = self.family.load_vae({key: tensor.float() for key, tensor in load_file(path).items()})
        encode = vae.encode
        # Its pictures lie channels last, for which PyTorch's group norm on the CPU loses up to 0.06 on plain surfaces.
        vae.encode = lambda pixels, *rest, **named: encode(pixels.contiguous(), *rest, **named)
        return vae

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
        alone = SimpleNamespace(
            retrieve_latent_cache_batches=lambda workers: [(None, [item])], get_all_latent_cache_files=lambda: []
        )
        options = SimpleNamespace(num_workers=1, skip_existing=False, keep_cache=True, batch_size=None)
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
            self.cache_latents.encode_datasets([alone], lambda batch: self.family.save(self.script, vae, *batch), options)
        return read_file(item.latent_cache_path)


def dtype_name(tensors):
    return str(next(iter(tensors.values())).dtype).removeprefix("torch.")


def compare(path, expected):
    """(largest difference, problems) of a cache against what the trainer writes for the same image."""
    (tensors, metadata), (wanted, wanted_metadata) = read_file(path), expected
    problems, largest = [], 0.0
    if metadata != wanted_metadata:
        problems.append(f"metadata is {metadata}, not {wanted_metadata}")
    wanted = {name.replace("float32", dtype_name(tensors)): tensor for name, tensor in wanted.items()}
    if tensors.keys() != wanted.keys():
        return float("nan"), problems + [f"holds {sorted(tensors)}, not {sorted(wanted)}"]
    for name, tensor in tensors.items():
        other = wanted[name]
        if tensor.shape != other.shape:
            problems.append(f"{name} is {tuple(tensor.shape)}, not {tuple(other.shape)}")
            continue
        # The trainer's own are f32 here: what its default dtype rounds away is no difference.
        rounding = 0 if tensor.dtype == torch.float32 else other.double().abs() * 2.0**-8
        difference = float(((tensor.double() - other.double()).abs() - rounding).max())
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
        rest = [trainer.family.full] if hasattr(trainer.family, "full") else []
        trainer.save_text(text, torch.zeros(trainer.family.text_shape, dtype=torch.bfloat16), *rest)
    dataset.cache_directory = folder
    dataset.prepare_for_training()
    manager = dataset.batch_manager
    for index in range(len(manager)):
        found["batches"] += 1
        width, height = manager.bucket_batch_indices[index][0][:2]
        try:
            latents = manager[index]["latents"]
            stride = 16 if isinstance(trainer.family, Flux2) else 8
            if tuple(latents.shape[-2:]) != (height // stride, width // stride):
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
    trainer = Trainer(args.musubi_tuner.resolve(), args.family)
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
