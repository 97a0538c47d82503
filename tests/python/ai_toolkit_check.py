"""Asks ai-toolkit itself whether it would train from the latent caches beside a folder's images, and whether they are right.

    python ai_toolkit_check.py --ai-toolkit DIR --arch sdxl|sd1|flux --vae FILE --folder DIR --resolution 512 [--flip-x]

Needs a checkout of ostris/ai-toolkit 0.12.26 and torch, torchvision, numpy, pillow, opencv-python-headless, diffusers,
safetensors, tqdm. What else it imports (albumentations, av, torchaudio, torchao, its models) is stood in for.

Sizes, buckets, names, the check for a cache, pixels and loading are ai-toolkit's own code: `FileItemDTO`, `BucketsMixin`.
Latents are recomputed from its tensors by diffusers' AutoencoderKL with the weights of `--vae`, in f32, as the posterior
mean; ai-toolkit itself stores a random draw.

For each image one line: ACCEPTED if the name that ai-toolkit looks for exists, else REJECTED, then the largest
difference. Exit status 1 if anything is REJECTED or differs by more than 1e-3, or if there is no image at all.
"""

import argparse
import copy
import importlib.abc
import importlib.machinery
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import torch
from torchvision import transforms

from sd_scripts_check import load_vae

TOLERANCE = 1e-3

# arch: (name of the latent space, bucket divisibility, shift, scale): data_loader.py:503, stable_diffusion_model.py:289,
# and the published configs of the VAEs.
ARCHS = {
    "sd1": ("sd1", 16, 0.0, 0.18215),
    "sdxl": ("sdxl", 16, 0.0, 0.13025),
    "flux": ("flux1", 32, 0.1159, 0.3611),
}

EXTENSIONS = (".jpg", ".jpeg", ".png", ".webp")

ABSENT = (
    "albumentations",
    "av",
    "torchaudio",
    "torchao",
    "transformers",
    "toolkit.accelerator",
    "toolkit.audio",
    "toolkit.control_generator",
    "toolkit.models",
    "toolkit.print",
    "toolkit.prompt_utils",
    "toolkit.stable_diffusion_model",
    "toolkit.train_tools",
)


class StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Packages that the loader imports and that no latent depends on."""

    def find_spec(self, name, path=None, target=None):
        if any(name == absent or name.startswith(absent + ".") for absent in ABSENT):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        module = MagicMock(name=spec.name)
        module.__path__, module.__spec__ = [], spec
        return module

    def exec_module(self, module):
        pass


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ai-toolkit", type=Path, required=True, help="checkout of ostris/ai-toolkit")
    parser.add_argument("--arch", choices=sorted(ARCHS), required=True)
    parser.add_argument("--vae", type=Path, required=True, help="safetensors file: a VAE or a full checkpoint")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--resolution", type=int, required=True)
    parser.add_argument("--flip-x", action="store_true")
    return parser.parse_args()


def file_items(args, step, latent_space):
    """ai-toolkit's own items of a folder, with their buckets: (items, transform)."""
    sys.path.insert(0, str(args.ai_toolkit.resolve()))
    sys.meta_path.insert(0, StandIns())
    from toolkit.config_modules import DatasetConfig
    from toolkit.data_transfer_object.data_loader import FileItemDTO
    from toolkit.dataloader_mixins import BucketsMixin

    config = DatasetConfig(
        folder_path=str(args.folder), resolution=args.resolution, cache_latents_to_disk=True, flip_x=args.flip_x
    )
    config.bucket_tolerance = step
    # The range that toolkit/data_loader.py's RescaleTransform gives.
    transform = transforms.Compose([transforms.ToTensor(), lambda tensor: tensor * 2 - 1])
    items = []
    for root, folders, files in os.walk(args.folder):
        folders[:] = sorted(folder for folder in folders if not folder.startswith("."))
        for file in sorted(files):
            if not file.lower().endswith(EXTENSIONS) or file.startswith("."):
                continue
            try:
                item = FileItemDTO(
                    path=os.path.join(root, file),
                    dataset_config=config,
                    dataloader_transforms=transform,
                    size_database={},
                    dataset_root=str(args.folder),
                    latent_space_version=latent_space,
                )
            except Exception as error:
                print(f"LEFT OUT  {os.path.join(root, file)}: {error}")
                continue
            items.append(item)
    if args.flip_x:
        for item in list(items):
            mirrored = copy.deepcopy(item)
            mirrored.flip_x = True
            items.append(mirrored)
    dataset = SimpleNamespace(
        file_list=items, dataset_config=config, epoch_num=0, is_audio_model=False, is_video=False, batch_size=1
    )
    for name in ("build_batch_indices", "shuffle_buckets"):
        setattr(dataset, name, getattr(BucketsMixin, name).__get__(dataset))
    BucketsMixin.setup_buckets(dataset, quiet=True)
    return items, transform


def check(item, transform, vae, shift, scale):
    """(accepted, largest difference, text)."""
    path = item.get_latent_path(recalculate=True)
    if not os.path.exists(path):
        return False, float("nan"), f"{os.path.basename(path)}: no such file"
    item.load_and_process_image(transform, only_load_latents=True)
    pixels = item.tensor.unsqueeze(0).float()
    with torch.no_grad():
        expected = (vae.encode(pixels).latent_dist.mean[0] - shift) * scale
    item.is_latent_cached = True
    cached = item.get_latent().float()
    if cached.shape != expected.shape:
        return True, float("inf"), f"shape {tuple(cached.shape)}, not {tuple(expected.shape)}"
    return True, (cached - expected).abs().max().item(), f"bucket {item.crop_width}x{item.crop_height}"


def main():
    args = parse_arguments()
    latent_space, step, shift, scale = ARCHS[args.arch]
    vae = load_vae(args.vae.resolve())
    items, transform = file_items(args, step, latent_space)
    rejected = wrong = 0
    largest = 0.0
    for item in items:
        accepted, difference, text = check(item, transform, vae, shift, scale)
        rejected += not accepted
        # Written so that a NaN is wrong too.
        wrong += accepted and not difference <= TOLERANCE
        largest = max(largest, difference) if accepted else largest
        verdict = "ACCEPTED" if accepted else "REJECTED"
        mirrored = " (mirrored)" if item.flip_x else ""
        print(f"{verdict}  {item.path}{mirrored}  {text}  max |cache - mean| {difference:.2g}")
    print(f"{len(items)} items: {len(items) - rejected} accepted, {rejected} rejected, {wrong} wrong, largest {largest:.2g}")
    return int(not items or rejected > 0 or wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
