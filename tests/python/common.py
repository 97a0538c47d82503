"""What several of the checks here need: diffusers' autoencoders at the widths of a file, and parts of trainers."""

import __future__
import ast
import importlib.abc
import importlib.machinery
import re
import sys
from unittest.mock import MagicMock

from safetensors.torch import load_file

from sd_scripts_check import load_vae

# Families on Wan 2.1's autoencoder.
WAN = ("qwen-image", "krea2", "anima", "wan21")

# (shift, scale) in the published configs of the autoencoders.
SCALING = {
    "sd15": (None, 0.18215),
    "sdxl": (None, 0.13025),
    "sd3": (0.0609, 1.5305),
}
FLUX_SCALING = (0.1159, 0.3611)


def widths(state, pattern):
    """First dimension of the tensors that `pattern` names, by its number, which must have one group."""
    found = {int(match[1]): len(state[key]) for key in state if (match := re.fullmatch(pattern, key))}
    return [found[level] for level in sorted(found)]


def filled(module, state, parts=("encoder.", "quant_conv.", "bn.running")):
    """The module with these weights; all that begin with `parts` must be there."""
    absent = [key for key in module.load_state_dict(state, strict=False).missing_keys if key.startswith(parts)]
    if absent:
        sys.exit(f"the VAE lacks {len(absent)} encoder weights, such as {min(absent)}")
    return module.eval()


def autoencoder(family, path):
    """diffusers' autoencoder of a family. Flux.2's and Wan's need diffusers' names in the file."""
    import diffusers

    if family.startswith("flux2"):
        state = load_file(path)
        blocks = widths(state, r"encoder\.down_blocks\.(\d+)\.resnets\.0\.conv1\.weight")
        layers = len(widths(state, r"encoder\.down_blocks\.0\.resnets\.(\d+)\.conv1\.weight"))
        return filled(diffusers.AutoencoderKLFlux2(block_out_channels=blocks, layers_per_block=layers), state)
    if family in WAN:
        state = load_file(path)
        kind = diffusers.AutoencoderKLWan if family == "wan21" else diffusers.AutoencoderKLQwenImage
        return filled(kind(base_dim=len(state["encoder.conv_in.weight"])), state)
    vae = load_vae(path)
    shift, scale = SCALING.get(family, FLUX_SCALING)
    vae.register_to_config(shift_factor=shift, scaling_factor=scale)
    return vae


def posterior_means():
    """Lets diffusers' distributions give their mean where a draw is asked for."""
    from diffusers.models.autoencoders.vae import DiagonalGaussianDistribution

    DiagonalGaussianDistribution.sample = lambda self, generator=None: self.mode()


class StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Packages that a trainer imports and that no latent depends on."""

    def __init__(self, *names):
        self.names = names

    def find_spec(self, name, path=None, target=None):
        if any(name == stood_in or name.startswith(stood_in + ".") for stood_in in self.names):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        module = MagicMock(name=spec.name)
        module.__path__, module.__spec__ = [], spec
        return module

    def exec_module(self, module):
        pass


def own_function(path, kind, name, **scope):
    """A method of a trainer's class, taken out of its file, whose module imports more than is installed here."""
    body = next(
        node for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef) and node.name == kind
    )
    method = next(node for node in body.body if isinstance(node, ast.FunctionDef) and node.name == name)
    exec(compile(ast.Module([method], []), str(path), "exec", flags=__future__.annotations.compiler_flag), scope)
    return scope[name]
