"""Writes dtypes.npz beside this file: every dtype that prebake reads, deflated. Made with numpy 2.4.6."""
import pathlib

import numpy as np

here = pathlib.Path(__file__).parent
np.savez_compressed(
    here / "dtypes.npz",
    f64=np.array([[0.5, -1.25]], np.float64),
    f32=np.array([[0.5, -1.25]], np.float32),
    f16=np.array([[0.5, -1.25]], np.float16),
    i64=np.array([-(2**40), 3], np.int64),
    i32=np.array([-70000, 3], np.int32),
    u8=np.array([0, 255], np.uint8),
    bool=np.array([True, False]),
    scalar=np.float32(0.5),
    empty=np.zeros((0, 4), np.float32),
)
