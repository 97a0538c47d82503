"""Makes the .pt files here: `python make.py` (PyTorch, any version from 2.0; these are 2.15's).

Values are arange / 7 in the file's dtype, so that a test can say what it must read.
"""
import gzip
import io
import torch


def saved(value) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def ramp(shape, dtype):
    count = 1
    for side in shape:
        count *= side
    return (torch.arange(count, dtype=torch.float32) / 7).to(dtype).reshape(shape)


files = {
    "bf16.pt": saved(ramp((4, 3, 5), torch.bfloat16)),
    "f32.pt": saved(ramp((4, 3, 5), torch.float32)),
    "bf16_gzip.pt": gzip.compress(saved(ramp((4, 3, 5), torch.bfloat16)), mtime=0),
    # A view into a longer storage, its axes in another order than its memory.
    "view.pt": saved(ramp((6, 3, 5), torch.float16)[1:5].permute(0, 2, 1)),
    "frame.pt": saved(ramp((16, 1, 2, 2), torch.bfloat16)),
    "dict.pt": saved({"latents": ramp((4, 3, 5), torch.bfloat16)}),
}
for name, content in files.items():
    with open(name, "wb") as file:
        file.write(content)
