"""Asks sd-scripts itself whether it would train from the latent caches beside a dataset's images, and whether they are right.

    python sd_scripts_check.py --sd-scripts DIR --model MODEL --vae FILE --config dataset.toml
    python sd_scripts_check.py --sd-scripts DIR --model MODEL --vae FILE --train-data-dir DIR --resolution 1024 --enable_bucket …

MODEL is sd15, sdxl, sd3, flux, chroma, lumina2, anima or hunyuan-image. Options it does not know (`--resolution`, `--flip_aug`, …) go to
sd-scripts' own option parser. Relative paths in the TOML are looked for beside the TOML. Needs a checkout of
kohya-ss/sd-scripts 0.10.1 and what its library imports:

    pip install torch torchvision numpy pillow opencv-python-headless==4.10.0.84 diffusers==0.32.1 transformers==4.54.1 \\
        accelerate==1.6.0 imagesize==1.4.1 safetensors einops voluptuous toml ftfy sentencepiece protobuf

Dataset description, buckets, cache names, validity check, pixels, loader and batches are sd-scripts' own code. Only its
tokenizer (a download) and the Accelerator (one CPU process) are stood in for. The latents are recomputed with the weights
of `--vae`, in f32, as the posterior mean: by diffusers' AutoencoderKL, for Anima and HunyuanImage by sd-scripts' own
networks. sd-scripts itself stores a random draw, for Anima the mean.

For each image one line: ACCEPTED or REJECTED by sd-scripts' check, then what differs. Exit status 1 if anything is
REJECTED, differs by more than 1e-3 or breaks a batch, or if there is no image at all.
"""

import argparse
import copy
import logging
import os
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from diffusers import AutoencoderKL
from safetensors import safe_open
from safetensors.torch import load_file

TOLERANCE = 1e-3

# How sd-scripts stores a latent: (z - shift) * scale. Only those of Flux's encoder, which Chroma and Lumina 2 share, are
# scaled in the file (library/flux_models.py, AutoEncoder.encode); the others are stored raw and scaled in training.
RAW, FLUX = (0.0, 1.0), (0.1159, 0.3611)
STORED_SHIFT_SCALE = {"sd15": RAW, "sdxl": RAW, "sd3": RAW, "flux": FLUX, "chroma": FLUX, "lumina2": FLUX}

MODELS = sorted([*STORED_SHIFT_SCALE, "anima", "hunyuan-image"])

# Names of the encoder's weights in original checkpoints and in older diffusers files -> diffusers' names today.
KEY_RULES = [
    (r"^(first_stage_model|vae)\.", ""),
    (r"\.down\.(\d+)\.block\.(\d+)\.", r".down_blocks.\1.resnets.\2."),
    (r"\.down\.(\d+)\.downsample\.", r".down_blocks.\1.downsamplers.0."),
    (r"\.mid\.block_1\.", ".mid_block.resnets.0."),
    (r"\.mid\.block_2\.", ".mid_block.resnets.1."),
    (r"\.mid\.attn_1\.norm\.", ".mid_block.attentions.0.group_norm."),
    (r"\.mid\.attn_1\.", ".mid_block.attentions.0."),
    (r"\.attentions\.0\.(q|query)\.", ".attentions.0.to_q."),
    (r"\.attentions\.0\.(k|key)\.", ".attentions.0.to_k."),
    (r"\.attentions\.0\.(v|value)\.", ".attentions.0.to_v."),
    (r"\.attentions\.0\.(proj_out|proj_attn)\.", ".attentions.0.to_out.0."),
    (r"\.nin_shortcut\.", ".conv_shortcut."),
    (r"\.norm_out\.", ".conv_norm_out."),
]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--sd-scripts", type=Path, required=True, help="checkout of kohya-ss/sd-scripts")
    parser.add_argument("--model", choices=MODELS, required=True)
    parser.add_argument("--vae", type=Path, required=True, help="safetensors file: a VAE or a full checkpoint")
    dataset = parser.add_mutually_exclusive_group(required=True)
    dataset.add_argument("--config", type=Path, help="sd-scripts dataset_config TOML")
    dataset.add_argument("--train-data-dir", type=Path, help="folder of N_name folders")
    return parser.parse_known_args()


def read_encoder(path):
    """The encoder half of a VAE or full checkpoint in f32, under diffusers' names."""
    state = {}
    with safe_open(path, framework="pt") as file:
        for key in file.keys():
            if not re.match(r"((first_stage_model|vae)\.)?(encoder|quant_conv)\.", key):
                continue
            name = key
            for pattern, replacement in KEY_RULES:
                name = re.sub(pattern, replacement, name)
            tensor = file.get_tensor(key).float()
            if ".attentions." in name and tensor.dim() == 4:  # 1x1 convolutions in original checkpoints
                tensor = tensor[:, :, 0, 0]
            state[name] = tensor
    return state


def load_vae(path):
    """diffusers' AutoencoderKL at the width and depth found in the file; the decoder is left out."""
    state = read_encoder(path)
    blocks = [re.match(r"encoder\.down_blocks\.(\d+)\.resnets\.(\d+)\.conv1\.weight", key) for key in state]
    blocks = [(int(found[1]), int(found[2])) for found in blocks if found]
    levels, layers = max(level for level, _ in blocks) + 1, max(layer for _, layer in blocks) + 1
    vae = AutoencoderKL(
        block_out_channels=[state[f"encoder.down_blocks.{level}.resnets.0.conv1.weight"].shape[0] for level in range(levels)],
        layers_per_block=layers,
        latent_channels=state["encoder.conv_out.weight"].shape[0] // 2,
        down_block_types=("DownEncoderBlock2D",) * levels,
        up_block_types=("UpDecoderBlock2D",) * levels,
        use_quant_conv="quant_conv.weight" in state,
    )
    del vae.decoder
    absent = set(vae.load_state_dict(state, strict=False).missing_keys)
    absent = {key for key in absent if not key.startswith("post_quant_conv.")}
    if absent:
        sys.exit(f"{path} lacks {len(absent)} encoder weights, such as {min(absent)}")
    return vae.eval()


def load_whole(module, path, state):
    """The module in f32 with these weights; all of its encoder's must be there."""
    absent = [key for key in module.load_state_dict(state, strict=False).missing_keys if key.startswith(("encoder.", "quant_conv."))]
    if absent:
        sys.exit(f"{path} lacks {len(absent)} encoder weights, such as {min(absent)}")
    return module.eval()


def anima_mean(path):
    """sd-scripts' own VAE for Anima, whose latents it normalises itself."""
    from library import qwen_image_autoencoder_kl as qwen

    state = qwen.convert_comfyui_state_dict({key: tensor.float() for key, tensor in load_file(path).items()})
    vae = load_whole(qwen.AutoencoderKLQwenImage(base_dim=len(state["encoder.conv_in.weight"])), path, state)
    return lambda pixels: vae.encode_pixels_to_latents(pixels)[0]


def hunyuan_image_mean(path):
    """sd-scripts' own encoder of HunyuanImage 2.1, at the widths found in the file."""
    from library import hunyuan_image_vae

    state = {key: tensor.float() for key, tensor in load_file(path).items()}
    widths = [len(state[f"encoder.down.{level}.block.0.conv1.weight"]) for level in range(6)]
    encoder = hunyuan_image_vae.Encoder(3, len(state["encoder.conv_out.weight"]) // 2, widths, 2, 32)
    load_whole(torch.nn.ModuleDict({"encoder": encoder}), path, state)
    return lambda pixels: encoder(pixels).chunk(2, dim=1)[0][0]


def kl_mean(path, model):
    """diffusers' network of the other families, stored as sd-scripts does."""
    vae, (shift, scale) = load_vae(path), STORED_SHIFT_SCALE[model]
    return lambda pixels: (vae.encode(pixels).latent_dist.mean[0] - shift) * scale


def load_mean(path, model):
    """Pixels (1, 3, H, W) in [-1, 1] -> the mean (C, h, w) as sd-scripts stores it, as a function."""
    own = {"anima": anima_mean, "hunyuan-image": hunyuan_image_mean}
    mean = own[model](path) if model in own else kl_mean(path, model)
    return torch.no_grad()(lambda pixels: mean(pixels).numpy())


class ZeroTokens:
    """Stands in for the tokenizer, whose vocabulary would be downloaded: latents do not depend on it."""

    def tokenize(self, text):
        return [torch.zeros(1, 77, dtype=torch.long)]


class NoEncoder:
    """Given to sd-scripts' caching step in place of a VAE: with caches that it takes, it encodes nothing."""

    device, dtype = torch.device("cpu"), torch.float32

    def encode(self, pixels):
        raise RuntimeError("sd-scripts wants to encode, although it accepted every cache")


class Trainer:
    """sd-scripts' own library, loaded from its checkout and set up as its training scripts do."""

    def __init__(self, root, model):
        sys.path.insert(0, str(root))
        from library import config_util, strategy_anima, strategy_base, strategy_flux, strategy_hunyuan_image
        from library import strategy_lumina, strategy_sd, strategy_sd3, train_util

        logging.disable(logging.INFO)
        self.config_util, self.train_util = config_util, train_util
        build = {
            "sd15": lambda: strategy_sd.SdSdxlLatentsCachingStrategy(True, True, 1, False),
            "sdxl": lambda: strategy_sd.SdSdxlLatentsCachingStrategy(False, True, 1, False),
            "sd3": lambda: strategy_sd3.Sd3LatentsCachingStrategy(True, 1, False),
            "flux": lambda: strategy_flux.FluxLatentsCachingStrategy(True, 1, False),
            "chroma": lambda: strategy_flux.FluxLatentsCachingStrategy(True, 1, False),
            "lumina2": lambda: strategy_lumina.LuminaLatentsCachingStrategy(True, 1, False),
            "anima": lambda: strategy_anima.AnimaLatentsCachingStrategy(True, 1, False),
            "hunyuan-image": lambda: strategy_hunyuan_image.HunyuanImageLatentsCachingStrategy(True, 1, False),
        }
        self.strategy = build[model]()
        strategy_base.LatentsCachingStrategy.set_strategy(self.strategy)
        strategy_base.TokenizeStrategy.set_strategy(ZeroTokens())

    def build_group(self, options):
        """The dataset group that its training scripts build from these command-line options."""
        parser = argparse.ArgumentParser(prog="sd-scripts")
        self.train_util.add_training_arguments(parser, True)
        self.train_util.add_dataset_arguments(parser, True, True, True)
        self.train_util.add_masked_loss_arguments(parser)
        self.config_util.add_config_arguments(parser)
        args = parser.parse_args(options)
        self.train_util.prepare_dataset_args(args, True)
        if args.dataset_config is not None:
            config = self.config_util.load_user_config(args.dataset_config)
        else:
            subsets = self.config_util.generate_dreambooth_subsets_config_by_subdirs(args.train_data_dir, args.reg_data_dir)
            config = {"datasets": [{"subsets": subsets}]}
        sanitizer = self.config_util.ConfigSanitizer(True, True, args.masked_loss, True)
        blueprint = self.config_util.BlueprintGenerator(sanitizer).generate(config, args)
        group, _ = self.config_util.generate_dataset_group_by_blueprint(blueprint.dataset_group)
        group.set_current_strategies()
        return group

    def cache_path(self, info):
        return info.latents_npz or self.strategy.get_latents_npz_path(info.absolute_path, info.image_size)

    def rejection(self, info, subset, path):
        """None where sd-scripts takes the cache, else why not; its check raises on a damaged file."""
        try:
            taken = self.strategy.is_disk_cached_latents_expected(info.bucket_reso, path, subset.flip_aug, subset.alpha_mask)
        except Exception as error:
            return f"its check raises {type(error).__name__}: {error}"
        if taken:
            return None
        return "a wanted key is not in it" if os.path.exists(path) else "no such file"


def difference(name, cached, expected):
    """(largest difference, problem or None) of one cached array."""
    if cached is None:
        return np.inf, f"{name} is absent"
    if cached.shape != expected.shape:
        return np.inf, f"{name} has shape {cached.shape}, not {expected.shape}"
    largest = float(np.abs(cached.astype(np.float64) - expected).max())
    # Written so that a NaN is a problem too.
    return largest, None if largest <= TOLERANCE else f"{name} differs by {largest:.3g}"


def compare(trainer, mean, info, subset, path):
    """(largest latent difference, problems) of an accepted cache against the same image computed anew."""
    picture = info
    if info.absolute_path.endswith(".npz"):  # metadata without image_size: the cache it found stands for the image
        picture = copy.copy(info)
        picture.absolute_path = info.image_key
    pixels, masks, sizes, crops = trainer.train_util.load_images_and_masks_for_caching([picture], subset.alpha_mask, False)
    latents, size, crop, flipped, mask = trainer.strategy.load_latents_from_disk(path, info.bucket_reso)
    wanted = [("latents", latents, mean(pixels))]
    if subset.flip_aug:
        wanted.append(("latents_flipped", flipped, mean(torch.flip(pixels, [3]))))
    found = [difference(*array) for array in wanted]
    problems = [problem for _, problem in found if problem]
    if subset.alpha_mask:
        problems += filter(None, [difference("alpha_mask", mask, masks[0].numpy())[1]])
    elif mask is not None:
        problems.append("holds an alpha_mask, which sd-scripts applies although alpha_mask is off")
    if list(size) != list(sizes[0]):
        problems.append(f"original_size is {size}, not {list(sizes[0])}")
    if list(crop) != list(crops[0]):
        problems.append(f"crop_ltrb is {crop}, not {list(crops[0])}")
    # numpy's maximum hands a NaN on; Python's max may lose it.
    return float(np.max([largest for largest, _ in found])), problems


def check_images(trainer, mean, dataset):
    """Prints one line an image; (images, rejected, wrong)."""
    rejected = wrong = 0
    for info in dataset.image_data.values():
        subset, path = dataset.image_to_subset[info.image_key], trainer.cache_path(info)
        reason = trainer.rejection(info, subset, path)
        if reason:
            rejected += 1
            print(f"REJECTED  {info.absolute_path}: {os.path.basename(path)}: {reason}")
            continue
        try:
            largest, problems = compare(trainer, mean, info, subset, path)
        except Exception as error:
            largest, problems = np.nan, [f"{type(error).__name__}: {error}"]
        wrong += bool(problems)
        width, height = info.bucket_reso
        print(f"ACCEPTED  {path}  bucket {width}x{height}  max |cache - mean| {largest:.2g}")
        for problem in problems:
            print(f"PROBLEM   {path}: {problem}")
    return len(dataset.image_data), rejected, wrong


def check_batches(dataset, stride):
    """Fetches every batch through sd-scripts' own caching step and `__getitem__`; (batches, broken)."""
    one_process = SimpleNamespace(num_processes=1, process_index=0, device="cpu", wait_for_everyone=lambda: None)
    dataset.new_cache_latents(NoEncoder(), one_process)
    broken = 0
    for index in range(len(dataset)):
        where = dataset.buckets_indices[index]
        width, height = dataset.bucket_manager.resos[where.bucket_index]
        try:
            latents = dataset[index]["latents"]
            if tuple(latents.shape[2:]) != (height // stride, width // stride):
                raise ValueError(f"latents {tuple(latents.shape)} in bucket {width}x{height}")
            if not torch.isfinite(latents).all():
                raise ValueError(f"latents that are not finite in bucket {width}x{height}")
        except Exception as error:
            broken += 1
            print(f"PROBLEM   batch {index}: {type(error).__name__}: {error}")
    return len(dataset), broken


def main():
    args, options = parse_arguments()
    root, vae_path = args.sd_scripts.resolve(), args.vae.resolve()
    if args.config is not None:
        config = args.config.resolve()
        options += ["--dataset_config", str(config)]
        os.chdir(config.parent)
    else:
        options += ["--train_data_dir", str(args.train_data_dir.resolve())]
    trainer = Trainer(root, args.model)
    mean, stride = load_mean(vae_path, args.model), 32 if args.model == "hunyuan-image" else 8
    group = trainer.build_group(options)
    images, rejected, wrong = np.sum([check_images(trainer, mean, dataset) for dataset in group.datasets], axis=0)
    print(f"{images} images: {images - rejected} accepted, {rejected} rejected, {wrong} with a problem")
    if rejected:
        print("batches not fetched, since sd-scripts would encode the rejected images first")
        return 1
    batches, broken = np.sum([check_batches(dataset, stride) for dataset in group.datasets], axis=0)
    print(f"{batches} batches: {batches - broken} fetched, {broken} broken")
    return int(images == 0 or wrong > 0 or broken > 0)


if __name__ == "__main__":
    sys.exit(main())
