"""Makes `networks.json` and `networks_io.safetensors`: the encoders beyond SD's and Flux's, as other people's code runs them.

    python networks.py [MUSUBI_TUNER SD_SCRIPTS]      # needs torch, diffusers >= 0.36, numpy, safetensors

No weights are stored: `values` makes them out of a tensor's diffusers name, here and in `tests/networks.rs` alike.
`networks.json` has for each network its encoder's tensors as diffusers names and shapes them, and under the name and
shape of the original checkpoint. `networks_io.safetensors` has `NET/mean_HxW` and `NET/logvar_HxW`, computed in float64
and rounded to float32, for the picture `values("input_HxW", (3, H, W))`; for Flux.2 also `flux2/normed_HxW`, the mean
patched and batch-normed. With checkouts of musubi-tuner and sd-scripts the original networks of Wan 2.1, Flux.2
(musubi-tuner) and HunyuanImage 2.1 (sd-scripts) run on the same weights under their original names, and must agree.
"""
import importlib.util
import json
import re
import sys
import types

import numpy as np
import torch
from diffusers import AutoencoderKLFlux2, AutoencoderKLHunyuanImage, AutoencoderKLQwenImage, AutoencoderKLWan
from safetensors.torch import save_file

GOLDEN = 0x9E3779B97F4A7C15


def uniform(name, count):
    """`count` numbers in [-1, 1): splitmix64 from the FNV-1a hash of `name`, 24 bits each."""
    seed = 0xCBF29CE484222325
    for byte in name.encode():
        seed = ((seed ^ byte) * 0x100000001B3) & (2**64 - 1)
    with np.errstate(over="ignore"):
        state = np.uint64(seed) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(GOLDEN)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((state ^ (state >> np.uint64(31))) >> np.uint64(40)).astype(np.float64) / 2**23 - 1


def values(name, shape):
    """What the tensor called `name` holds, rounded to f16: activations stay near one whatever the depth."""
    v = uniform(name, int(np.prod(shape)))
    if name.startswith("input_"):
        return torch.from_numpy(v.astype(np.float32).reshape(shape))
    if name.endswith("running_mean"):
        v = 0.5 * v
    elif name.endswith("running_var"):
        v = 1 + 0.5 * v
    elif name.endswith(".bias"):
        v = 0.05 * v
    elif name.endswith("gamma") or len(shape) == 1:
        v = 1 + 0.1 * v
    else:
        taps = shape[-1] * shape[-2] if len(shape) > 2 else 1
        v = v * np.sqrt(3 / (shape[1] * taps))
    return torch.from_numpy(v.astype(np.float16).reshape(shape))


def belongs(name):
    return name.startswith(("encoder.", "quant_conv.", "bn.running"))


def filled(model):
    """The model in float64 with our weights in its encoder, and these weights."""
    weights = {name: values(name, tuple(t.shape)) for name, t in model.state_dict().items() if belongs(name)}
    _, unexpected = model.load_state_dict({k: v.float() for k, v in weights.items()}, strict=False)
    assert not unexpected
    return model.double().eval(), weights


LDM = [
    (r"down_blocks\.(\d+)\.resnets\.(\d+)", r"down.\1.block.\2"),
    (r"down_blocks\.(\d+)\.downsamplers\.0", r"down.\1.downsample"),
    (r"mid_block\.resnets\.0", "mid.block_1"),
    (r"mid_block\.resnets\.1", "mid.block_2"),
    (r"mid_block\.attentions\.0\.(group_norm|norm)\.", "mid.attn_1.norm."),
    (r"mid_block\.attentions\.0\.to_out\.0", "mid.attn_1.proj_out"),
    (r"mid_block\.attentions\.0\.proj\.", "mid.attn_1.proj_out."),
    (r"mid_block\.attentions\.0\.to_([qkv])", r"mid.attn_1.\1"),
    (r"conv_norm_out", "norm_out"),
    (r"conv_shortcut", "nin_shortcut"),
]
WAN = [
    (r"conv_in", "conv1"),
    (r"down_blocks\.(\d+)", r"downsamples.\1"),
    (r"mid_block\.resnets\.0", "middle.0"),
    (r"mid_block\.attentions\.0", "middle.1"),
    (r"mid_block\.resnets\.1", "middle.2"),
    (r"norm_out", "head.0"),
    (r"conv_out", "head.2"),
    (r"norm1", "residual.0"),
    (r"(\d)\.conv1", r"\1.residual.2"),
    (r"norm2", "residual.3"),
    (r"(\d)\.conv2", r"\1.residual.6"),
    (r"conv_shortcut", "shortcut"),
    (r"^quant_conv", "conv1"),
]


def renamed(name, rules):
    for pattern, replacement in rules:
        name = re.sub(pattern, replacement, name)
    return name


def flux2_original(name):
    return re.sub("^quant_conv", "encoder.quant_conv", renamed(name, LDM))


def hunyuan_original(name, per_level=3):
    """diffusers numbers resnets and downsamplers of all levels in one row: two resnets and a downsampler a level."""

    def block(match):
        level, place = divmod(int(match[1]), per_level)
        return f"down.{level}.downsample." if place == per_level - 1 else f"down.{level}.block.{place}."

    return renamed(re.sub(r"down_blocks\.(\d+)\.", block, name), LDM)


def module_of(path, name, **stubs):
    for stub, content in stubs.items():
        sys.modules.setdefault(stub, types.SimpleNamespace(**content))
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def original_means(checkouts, net, weights):
    """Means of the original network, as a function of a picture; None without checkouts."""
    if not checkouts:
        return None
    musubi, scripts = checkouts
    if net == "wan":
        wan = module_of(f"{musubi}/src/musubi_tuner/wan/modules/vae.py", "wan_vae")
        model = wan.WanVAE_(dim=12, z_dim=16, dim_mult=[1, 2, 4, 4], num_res_blocks=2, attn_scales=[],
                            temperal_downsample=[False, True, True])
        run = lambda x: model.encode(x[:, :, None], [0.0, 1.0])[:, :, 0]
    elif net == "flux2":
        sys.path.insert(0, f"{musubi}/src")
        from musubi_tuner.flux_2 import flux2_models

        model = flux2_models.AutoEncoder(flux2_models.AutoEncoderParams(ch=32, ch_mult=[1, 2, 2, 2], num_res_blocks=1))
        run = lambda x: model.encoder(x).chunk(2, dim=1)[0]
    else:
        sys.path.insert(0, scripts)
        from library import hunyuan_image_vae

        encoder = hunyuan_image_vae.Encoder(3, 64, (32, 32, 64, 64, 128, 128), 2, 32)
        model = torch.nn.ModuleDict({"encoder": encoder})
        run = lambda x: encoder(x).chunk(2, dim=1)[0]
    missing, unexpected = model.load_state_dict({k: v.float() for k, v in weights.items()}, strict=False)
    own = [name for name in missing if name.startswith(("encoder.", "conv1."))]
    assert not unexpected and not own, (unexpected, own)
    model.double().eval()
    return run


def main(checkouts):
    nets = {
        "flux2": (
            AutoencoderKLFlux2(block_out_channels=(32, 64, 64, 64), layers_per_block=1),
            flux2_original, [(64, 64), (48, 80), (16, 112)],
        ),
        "wan": (
            AutoencoderKLWan(base_dim=12, z_dim=16, dim_mult=[1, 2, 4, 4], num_res_blocks=2),
            lambda name: renamed(name, WAN), [(64, 64), (40, 72), (8, 120), (136, 8)],
        ),
        "hunyuan": (
            AutoencoderKLHunyuanImage(
                in_channels=3, out_channels=3, latent_channels=64, block_out_channels=(32, 32, 64, 64, 128, 128),
                layers_per_block=2, spatial_compression_ratio=32, sample_size=384, scaling_factor=0.75289,
            ),
            hunyuan_original, [(64, 64), (96, 32), (32, 160)],
        ),
    }
    table, io = {}, {}
    for net, (model, original, sizes) in nets.items():
        model, weights = filled(model)
        as_original = {}
        for name, tensor in weights.items():
            square = net == "flux2" and "attentions" in name and tensor.ndim == 2
            as_original[original(name)] = tensor[:, :, None, None] if square else tensor
        assert len(as_original) == len(weights)
        table[net] = [
            [name, list(tensor.shape), other, list(same.shape)]
            for (name, tensor), (other, same) in zip(weights.items(), as_original.items())
        ]
        run = original_means(checkouts, net, as_original)
        twin = None
        if net == "wan":
            twin, _ = filled(AutoencoderKLQwenImage(base_dim=12, z_dim=16, dim_mult=[1, 2, 4, 4], num_res_blocks=2))
            for part in ("latents_mean", "latents_std"):
                assert list(getattr(twin.config, part)) == list(getattr(model.config, part)), part
        for height, width in sizes:
            size = f"{height}x{width}"
            x = values(f"input_{size}", (3, height, width))[None].double()
            with torch.inference_mode():
                encode = lambda m: m.encode(x[:, :, None] if net == "wan" else x).latent_dist
                posterior = encode(model)
                mean, logvar = posterior.mean, posterior.logvar
                if run is not None:
                    apart = (run(x) - (mean[:, :, 0] if net == "wan" else mean)).abs().max().item()
                    print(net, size, "original off by", apart)
                    assert apart < 1e-9
                if twin is not None:
                    assert (encode(twin).mean - mean).abs().max() < 1e-9
                if net == "flux2":
                    patched = mean.reshape(1, 32, height // 16, 2, width // 16, 2).permute(0, 1, 3, 5, 2, 4)
                    io[f"{net}/normed_{size}"] = model.bn(patched.reshape(1, 128, height // 16, width // 16))[0]
            io[f"{net}/mean_{size}"], io[f"{net}/logvar_{size}"] = mean[0], logvar[0]
            print(net, size, "mean", mean.std().item(), "logvar", logvar.std().item())
    save_file({key: value.float().contiguous() for key, value in io.items()}, "networks_io.safetensors")
    with open("networks.json", "w") as file:
        lines = {net: ",\n  ".join(json.dumps(row) for row in rows) for net, rows in table.items()}
        file.write("{" + ",\n".join(f'"{net}": [\n  {rows}\n]' for net, rows in lines.items()) + "}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
