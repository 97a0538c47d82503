"""Asks ai-toolkit itself whether it would train from the latent caches of a folder, and whether they are right.

    python ai_toolkit_check.py --ai-toolkit DIR --arch ARCH --vae FILE --folder DIR --resolution 512 [--flip-x]

Needs a checkout of ostris/ai-toolkit 0.12.26 and torch, torchvision, numpy, pillow, opencv-python-headless,
diffusers, safetensors, einops, tqdm; diffusers >= 0.36 for Wan's autoencoder. What else it imports (albumentations,
av, torchaudio, torchao, its models) is stood in for.

Sizes, buckets, names, the check for a cache, pixels and loading are ai-toolkit's own code (`FileItemDTO`,
`BucketsMixin`), and so is what a model does around its autoencoder (`encode_images`). The autoencoder is diffusers',
with the weights of `--vae`, which must have diffusers' names for archs on Wan's, and Flux.2's is ai-toolkit's own,
with the original names. It runs in f32 and gives the posterior mean; ai-toolkit itself stores a random draw in most
archs.

For each image one line: ACCEPTED if the name that ai-toolkit looks for exists, else REJECTED, then the largest
difference. Exit status 1 if anything is REJECTED or differs by more than 1e-3, or if there is no image at all.
"""

import argparse
import copy
import importlib.util
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import torch
from safetensors.torch import load_file
from torchvision import transforms

from common import StandIns, autoencoder, filled, own_function, posterior_means, widths

TOLERANCE = 1e-3

BUILT_IN = "extensions_built_in/diffusion_models"

# arch: (family, name of the latent space, bucket divisibility, file and class whose `encode_images` it takes):
# data_loader.py:503, `get_bucket_divisibility` of the classes.
ARCHS = {
    "sd1": ("sd15", "sd1", 16, "toolkit/stable_diffusion_model.py", "StableDiffusion"),
    "sdxl": ("sdxl", "sdxl", 16, "toolkit/stable_diffusion_model.py", "StableDiffusion"),
    "sd3": ("sd3", "sd3", 32, "toolkit/stable_diffusion_model.py", "StableDiffusion"),
    "flux": ("flux", "flux1", 32, "toolkit/stable_diffusion_model.py", "StableDiffusion"),
    "flux_kontext": ("flux", "flux_kontext", 16, "toolkit/models/base_model.py", "BaseModel"),
    "chroma": ("chroma", "chroma", 32, "toolkit/models/base_model.py", "BaseModel"),
    "lumina2": ("lumina2", "lumina2", 16, "toolkit/stable_diffusion_model.py", "StableDiffusion"),
    "zimage": ("z-image", "zimage", 16, "toolkit/models/base_model.py", "BaseModel"),
    "flux2": ("flux2", "flux2", 16, f"{BUILT_IN}/flux2/flux2_model.py", "Flux2Model"),
    "flux2_klein_4b": ("flux2", "flux2_klein_4b", 16, f"{BUILT_IN}/flux2/flux2_model.py", "Flux2Model"),
    "flux2_klein_9b": ("flux2", "flux2_klein_9b", 16, f"{BUILT_IN}/flux2/flux2_model.py", "Flux2Model"),
    "qwen_image": ("qwen-image", "qwen_image", 32, f"{BUILT_IN}/qwen_image/qwen_image.py", "QwenImageModel"),
    "krea2": ("krea2", "krea2", 16, f"{BUILT_IN}/krea2/krea2.py", "Krea2Model"),
    "anima": ("anima", "anima", 32, f"{BUILT_IN}/anima/anima.py", "AnimaModel"),
    "wan21": ("wan21", "wan21", 16, "toolkit/models/wan21/wan21.py", "Wan21"),
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
    sys.meta_path.insert(0, StandIns(*ABSENT))
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


def flux2_autoencoder(root, path):
    """ai-toolkit's own class at the widths of the file."""
    source = importlib.util.spec_from_file_location("flux2_autoencoder", root / BUILT_IN / "flux2/src/autoencoder.py")
    module = importlib.util.module_from_spec(source)
    sys.modules["flux2_autoencoder"] = module
    source.loader.exec_module(module)
    state = load_file(path)
    blocks = widths(state, r"encoder\.down\.(\d+)\.block\.0\.conv1\.weight")
    layers = len(widths(state, r"encoder\.down\.0\.block\.(\d+)\.conv1\.weight"))
    multiples = [width // blocks[0] for width in blocks]
    params = module.AutoEncoderParams(ch=blocks[0], ch_mult=multiples, num_res_blocks=layers)
    return filled(module.AutoEncoder(params), state, ("encoder.", "bn.running"))


def encoder(args):
    """ai-toolkit's way from pixels (C, H, W) in [-1, 1] to a latent, as a function."""
    family, _, _, file, kind = ARCHS[args.arch]
    root, path = args.ai_toolkit.resolve(), args.vae.resolve()
    vae = flux2_autoencoder(root, path) if family == "flux2" else autoencoder(family, path)
    tiny = type("AutoencoderTiny", (), {})
    scope = dict(torch=torch, F=torch.nn.functional, Resize=transforms.Resize, AutoencoderTiny=tiny)
    encode = own_function(root / file, kind, "encode_images", **scope)
    model = SimpleNamespace(
        vae=vae,
        vae_device_torch=torch.device("cpu"),
        vae_torch_dtype=torch.float32,
        model_config=SimpleNamespace(low_vram=False),
    )

    def run(pixels):
        with torch.no_grad():
            return encode(model, [pixels])[0]

    return run


def check(item, transform, encode):
    """(accepted, largest difference, text)."""
    path = item.get_latent_path(recalculate=True)
    if not os.path.exists(path):
        return False, float("nan"), f"{os.path.basename(path)}: no such file"
    item.load_and_process_image(transform, only_load_latents=True)
    expected = encode(item.tensor.float())
    item.is_latent_cached = True
    cached = item.get_latent().float()
    if cached.shape != expected.shape:
        return True, float("inf"), f"shape {tuple(cached.shape)}, not {tuple(expected.shape)}"
    return True, (cached - expected).abs().max().item(), f"bucket {item.crop_width}x{item.crop_height}"


def main():
    args = parse_arguments()
    _, latent_space, step, *_ = ARCHS[args.arch]
    posterior_means()
    encode = encoder(args)
    items, transform = file_items(args, step, latent_space)
    rejected = wrong = 0
    largest = 0.0
    for item in items:
        accepted, difference, text = check(item, transform, encode)
        rejected += not accepted
        # Written so that a NaN is wrong too.
        wrong += accepted and not difference <= TOLERANCE
        largest = max(largest, difference) if accepted else largest
        verdict = "ACCEPTED" if accepted else "REJECTED"
        mirrored = " (mirrored)" if item.flip_x else ""
        print(f"{verdict}  {item.path}{mirrored}  {text}  max |cache - mean| {difference:.2g}")
    print(
        f"{len(items)} items: {len(items) - rejected} accepted, {rejected} rejected, {wrong} wrong, largest {largest:.2g}"
    )
    return int(not items or rejected > 0 or wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
