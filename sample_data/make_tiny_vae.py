"""Makes `tiny-vae.safetensors`: the encoder half of a small KL autoencoder in SDXL's layout, with random weights.

    pip install numpy safetensors
    python sample_data/make_tiny_vae.py

Keys are those of diffusers' `AutoencoderKL`; 4 latent channels, `quant_conv` present, block_out_channels
(32, 64, 64, 64), one ResNet block a level (a real SDXL VAE has (128, 256, 512, 512) and two), 32 norm groups, f16.
The seed is fixed, so every run writes the same file. The latents mean nothing.
"""
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

SEED = 0
WIDTHS = (32, 64, 64, 64)
LATENT_CHANNELS = 4
# Mean square of SiLU over a standard normal input; dividing by it keeps the variance at 1 from layer to layer.
SILU_POWER = 0.3557
# A trained VAE is nearly sure of its posterior; with weights near zero, the log-variance stays close to this bias.
LOGVAR_BIAS, LOGVAR_SCALE = -12.0, 0.05

rng = np.random.default_rng(SEED)
weights = {}


def put(name, weight, bias):
    weights[f"{name}.weight"] = weight.astype(np.float16)
    weights[f"{name}.bias"] = np.broadcast_to(bias, weight.shape[:1]).astype(np.float16)


def conv(name, inputs, outputs, kernel, input_power=1.0):
    """Weight (outputs, inputs, kernel, kernel) that maps inputs of this mean square to outputs of variance 1."""
    scale = (inputs * kernel * kernel * input_power) ** -0.5
    put(name, rng.standard_normal((outputs, inputs, kernel, kernel)) * scale, rng.standard_normal(outputs) * 0.02)


def linear(name, channels):
    put(name, rng.standard_normal((channels, channels)) * channels**-0.5, rng.standard_normal(channels) * 0.02)


def norm(name, channels):
    put(name, 1 + rng.standard_normal(channels) * 0.05, rng.standard_normal(channels) * 0.02)


def resnet(name, inputs, outputs):
    norm(f"{name}.norm1", inputs)
    conv(f"{name}.conv1", inputs, outputs, 3, SILU_POWER)
    norm(f"{name}.norm2", outputs)
    conv(f"{name}.conv2", outputs, outputs, 3, SILU_POWER)
    if inputs != outputs:
        conv(f"{name}.conv_shortcut", inputs, outputs, 1)


def attention(name, channels):
    norm(f"{name}.group_norm", channels)
    for part in ("to_q", "to_k", "to_v", "to_out.0"):
        linear(f"{name}.{part}", channels)


def encoder():
    moments = 2 * LATENT_CHANNELS
    conv("encoder.conv_in", 3, WIDTHS[0], 3, input_power=0.3)  # a photo in [-1, 1] has a mean square near 0.3
    channels = WIDTHS[0]
    for level, width in enumerate(WIDTHS):
        block = f"encoder.down_blocks.{level}"
        resnet(f"{block}.resnets.0", channels, width)
        channels = width
        if level + 1 < len(WIDTHS):
            conv(f"{block}.downsamplers.0.conv", channels, channels, 3)
    resnet("encoder.mid_block.resnets.0", channels, channels)
    attention("encoder.mid_block.attentions.0", channels)
    resnet("encoder.mid_block.resnets.1", channels, channels)
    norm("encoder.conv_norm_out", channels)
    conv("encoder.conv_out", channels, moments, 3, SILU_POWER)
    quant = rng.standard_normal((moments, moments, 1, 1)) * moments**-0.5
    quant[LATENT_CHANNELS:] *= LOGVAR_SCALE
    put("quant_conv", quant, np.repeat([0.0, LOGVAR_BIAS], LATENT_CHANNELS))


if __name__ == "__main__":
    encoder()
    save_file(weights, Path(__file__).parent / "tiny-vae.safetensors", metadata={"format": "pt"})
