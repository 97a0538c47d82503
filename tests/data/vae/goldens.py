"""Computes mean and logvar of the *_io.safetensors files from the weights and inputs beside them.

    python goldens.py            # needs torch, diffusers, safetensors; writes the two *_io files anew

diffusers' AutoencoderKL in float64 on the CPU, results rounded to float32. Inputs are kept.
"""
import torch
from diffusers import AutoencoderKL
from safetensors.torch import load_file, save_file

for name, latent, quant in (("sdxl_tiny", 4, True), ("flux_tiny", 16, False)):
    vae = AutoencoderKL(
        block_out_channels=(32, 64, 64, 64), layers_per_block=2, latent_channels=latent, norm_num_groups=32,
        down_block_types=("DownEncoderBlock2D",) * 4, up_block_types=("UpDecoderBlock2D",) * 4,
        use_quant_conv=quant, use_post_quant_conv=quant,
    )
    missing, unexpected = vae.load_state_dict(load_file(f"{name}_f16.safetensors"), strict=False)
    assert not unexpected and all(key.startswith(("decoder.", "post_quant_conv.")) for key in missing)
    vae = vae.double().eval()
    old = load_file(f"{name}_io.safetensors")
    new = {key: value for key, value in old.items() if key.startswith("input_")}
    for key in list(new):
        with torch.inference_mode():
            posterior = vae.encode(new[key].double()).latent_dist
        for part in ("mean", "logvar"):
            new[key.replace("input", part)] = getattr(posterior, part).float().contiguous()
    print(name, max((new[key] - old[key]).abs().max().item() for key in old))
    save_file(new, f"{name}_io.safetensors")
