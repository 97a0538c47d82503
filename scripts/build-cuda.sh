#!/usr/bin/env bash
# Builds prebake with the encoder on NVIDIA GPUs, on a machine that need not have one.
#
#   scripts/build-cuda.sh [cudnn|cuda]        (default: cudnn)
#
# Needs x86-64 Linux with glibc, Rust, gcc, and either a CUDA 12 or 13 toolkit (`nvcc` on the PATH) or `pip`: without a
# toolkit, NVIDIA's own wheels are unpacked from PyPI (2.6 GB with cuDNN). cuDNN 9 has to lie in the toolkit's library
# folder where a toolkit is used; leave it out with `cuda`.
#
#   CUDA_COMPUTE_CAP   oldest GPU that must run the binary, 80 (default) for Ampere and all later ones. From 90 on the
#                      kernels are for that one chip: 90 runs on H100 and H200, not on Blackwell.
#   CUDA_WHEELS        folder for the wheels (default: target/cuda-toolkit)
#   CARGO_TARGET_DIR   as for cargo; the binary is at release/prebake in it
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

feature=${1:-cudnn}
wheels=${CUDA_WHEELS:-$PWD/target/cuda-toolkit}
stub=$wheels/stub
export CUDA_COMPUTE_CAP=${CUDA_COMPUTE_CAP:-80}

fail() {
    echo "build-cuda: $*" >&2
    exit 1
}

# nvcc's host headers, libraries and compiler parts come as separate wheels, all of one CUDA release.
fetch_toolkit() {
    command -v pip >/dev/null || fail "neither nvcc nor pip was found: install a CUDA toolkit or Python's pip"
    pip install --quiet --no-deps --target "$wheels" \
        nvidia-cuda-nvcc==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-cuda-runtime==13.0.96 \
        nvidia-cuda-cccl==13.0.85 nvidia-cuda-nvrtc==13.0.88 nvidia-curand==10.4.0.35 nvidia-cublas==13.0.2.14 \
        nvidia-cudnn-cu13==9.28.1.4
}

# The linker looks for libX.so, the wheels hold libX.so.N.
link_unversioned() {
    local name file
    for name in cudart cublas cublasLt curand nvrtc cudnn; do
        for file in "$CUDA_HOME/lib/lib$name".so.* "$wheels/nvidia/cudnn/lib/lib$name".so.*; do
            [[ -e $file ]] && ln -sf "$file" "$CUDA_HOME/lib/lib$name.so"
        done
    done
}

# libcuda.so comes with NVIDIA's driver, which a build machine lacks. The stub has every name that candle's bindings know
# and answers CUDA_ERROR_NO_DEVICE. It is linked against only: on the GPU's machine the driver's own is found.
make_driver_stub() {
    local bindings
    cargo fetch --locked
    bindings=$(cargo metadata --format-version 1 --locked --features cuda |
        grep -o '"[^"]*/cudarc-[^"/]*/Cargo.toml"' | head -n 1 | tr -d '"')
    bindings=$(dirname "$bindings")/src/driver/sys/mod.rs
    [[ -f $bindings ]] || fail "the CUDA bindings are not where they were: $bindings"
    mkdir -p "$stub"
    grep -ohE '\bfn cu[A-Z][A-Za-z0-9_]*' "$bindings" | awk '{ print "int " $2 "(void) { return 100; }" }' | sort -u |
        "${CC:-cc}" -shared -fPIC -Wl,-soname,libcuda.so.1 -x c - -o "$stub/libcuda.so.1"
    ln -sf libcuda.so.1 "$stub/libcuda.so"
}

[[ $feature == cuda || $feature == cudnn ]] || fail "$feature: cuda or cudnn is needed"
if nvcc=$(command -v nvcc); then
    CUDA_HOME=$(dirname "$(dirname "$(readlink -f "$nvcc")")")
    libraries=$CUDA_HOME/lib64
else
    CUDA_HOME=$wheels/nvidia/cu13
    [[ -x $CUDA_HOME/bin/nvcc ]] || fetch_toolkit
    link_unversioned
    libraries=$CUDA_HOME/lib
    export PATH=$CUDA_HOME/bin:$PATH
fi
make_driver_stub
export CUDA_HOME CUDA_PATH=$CUDA_HOME
# The stub's folder is not in the binary's own search path; undefined names inside cuDNN are its own affair.
export RUSTFLAGS="${RUSTFLAGS:-} -L native=$libraries -L native=$stub -C link-arg=-Wl,--allow-shlib-undefined"
cargo build --release --locked --features "$feature"
