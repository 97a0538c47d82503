#!/usr/bin/env bash
# Bakes pictures of every awkward kind for each trainer and family, and lets the trainers' own code check the result.
#
#     SD_SCRIPTS=DIR MUSUBI=DIR SIMPLETUNER=DIR AI_TOOLKIT=DIR PYTHON=python scripts/check-trainers.sh OUT [SEED]
#
# The variables name checkouts; a trainer without one is left out. Each check in tests/python says what it needs of
# Python; sd-scripts wants other versions than the rest, so SD_SCRIPTS_PYTHON may name another interpreter. OUT must not
# exist. A line for each trainer and family goes to the screen and to OUT/results.txt, the checks' full answers lie
# beside it. Exit status 1 if any of them failed.
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
out=${1:?"usage: scripts/check-trainers.sh OUT [SEED]"}
seed=${2:-1}
python=${PYTHON:-python3}
data=$root/tests/data/vae
failed=0

[[ ! -e $out ]] || { echo "$out exists" >&2; exit 2; }
mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 2
(cd "$root" && cargo build --release --locked) || exit 2
prebake=$root/target/release/prebake
"$python" "$root/tests/python/make_inputs.py" "$out" "$seed" || exit 2
vae=$out/vae

# say NAME INTERPRETER CHECK ARGUMENTS: runs one check and tells what it counted.
say() {
    local name=$1 interpreter=$2 check=$3
    shift 3
    "$interpreter" "$root/tests/python/$check" "$@" >"$out/$name.check" 2>&1 || failed=1
    echo "$name: $(tail -n 3 "$out/$name.check" | grep -E '^[0-9]|Error' | paste -sd ' ')" | tee -a "$out/results.txt"
}

# bake NAME ARGUMENTS: a bake that leaves single pictures out is well, one that does nothing is told by the check.
bake() {
    local name=$1
    shift
    "$prebake" bake "$@" >"$out/$name.bake" 2>&1
}

pictures() {
    mkdir -p "$(dirname "$1")" && cp -R "$out/pictures" "$1"
}

sd_scripts() { # FAMILY VAE STEP
    local name=sd-scripts-$1 folder=$out/sd-scripts-$1
    pictures "$folder/3_odd"
    mv "$folder"/3_odd/deep/*.* "$folder"/3_odd/deep/er/*.* "$folder/3_odd" && rm -r "$folder/3_odd/deep"
    bake "$name" "$folder" --for sd-scripts --family "$1" --vae "$2" --resolution 256 --min-bucket 64 --bucket-step "$3" --flip
    say "$name" "${SD_SCRIPTS_PYTHON:-$python}" sd_scripts_check.py --sd-scripts "$SD_SCRIPTS" --model "$1" --vae "$2" \
        --train-data-dir "$folder" --resolution 256 --enable_bucket --min_bucket_reso 64 --bucket_reso_steps "$3" --flip_aug
}

musubi() { # FAMILY VAE
    local name=musubi-$1 folder=$out/musubi-$1
    pictures "$folder/set"
    cat >"$folder/dataset.toml" <<TOML
[general]
caption_extension = ".txt"
batch_size = 2
enable_bucket = true
[[datasets]]
resolution = 256
image_directory = "set"
cache_directory = "cache-256"
num_repeats = 2
[[datasets]]
resolution = [320, 192]
bucket_no_upscale = true
image_directory = "set"
cache_directory = "cache-320x192"
TOML
    bake "$name" "$folder/dataset.toml" --for musubi --family "$1" --vae "$2"
    say "$name" "$python" musubi_check.py --musubi-tuner "$MUSUBI" --family "$1" --vae "$2" --config "$folder/dataset.toml"
}

simpletuner() { # FAMILY VAE SETTINGS
    local name=simpletuner-$1 folder=$out/simpletuner-$1
    pictures "$folder/set"
    cat >"$folder/list.json" <<JSON
[{"id": "odd", "type": "local", "dataset_type": "image", "instance_data_dir": "set", "cache_dir_vae": "cache",
  "caption_strategy": "textfile", $3},
 {"id": "text", "type": "local", "dataset_type": "text_embeds", "cache_dir": "text", "default": true}]
JSON
    bake "$name" "$folder/list.json" --for simpletuner --family "$1" --vae "$2"
    say "$name" "$python" simpletuner_check.py --simpletuner "$SIMPLETUNER" --family "$1" --vae "$2" --list "$folder/list.json"
}

ai_toolkit() { # ARCH FAMILY VAE VAE_OF_THE_CHECK
    local name=ai-toolkit-$1 folder=$out/ai-toolkit-$1
    pictures "$folder/set"
    cat >"$folder/job.yaml" <<YAML
job: extension
config:
  name: odd
  process:
    - type: sd_trainer
      model: {arch: $1, name_or_path: none}
      datasets:
        - {folder_path: set, caption_ext: txt, resolution: [256], cache_latents_to_disk: true, flip_x: true}
YAML
    bake "$name" "$folder/job.yaml" --for ai-toolkit --family "$2" --vae "$3"
    say "$name" "$python" ai_toolkit_check.py --ai-toolkit "$AI_TOOLKIT" --arch "$1" --vae "$4" --folder "$folder/set" \
        --resolution 256 --flip-x
}

sd15=$data/tiny4_diffusers_f16.safetensors sdxl=$data/sdxl_tiny_f16.safetensors
sd3=$data/tiny16_ldm_f16.safetensors flux=$data/flux_tiny_f16.safetensors
flux2=$vae/flux2_diffusers.safetensors flux2_original=$vae/flux2_original.safetensors
wan=$vae/wan_diffusers.safetensors wan_original=$vae/wan_original.safetensors

if [[ -n ${SD_SCRIPTS:-} ]]; then
    sd_scripts sd15 "$sd15" 64
    sd_scripts sdxl "$sdxl" 32
    sd_scripts sd3 "$sd3" 32
    sd_scripts flux "$flux" 32
    sd_scripts chroma "$flux" 32
    sd_scripts lumina2 "$flux" 32
    sd_scripts anima "$wan_original" 32
    sd_scripts hunyuan-image "$vae/hunyuan_original.safetensors" 32
fi
if [[ -n ${MUSUBI:-} ]]; then
    musubi z-image "$flux"
    musubi flux2 "$flux2_original"
    musubi flux2-klein-4b "$flux2_original"
    musubi flux2-klein-9b "$flux2_original"
    musubi qwen-image "$wan_original"
    musubi krea2 "$wan"
    musubi wan21 "$wan_original"
fi
if [[ -n ${SIMPLETUNER:-} ]]; then
    area='"resolution": 0.0655, "resolution_type": "area"' kept='"crop": true, "crop_style": "center", "crop_aspect": "preserve"'
    edge='"resolution": 256, "resolution_type": "pixel_area", "crop": true'
    simpletuner sd15 "$sd15" "$area, $kept"
    simpletuner sdxl "$sdxl" '"resolution": 256, "resolution_type": "pixel", "crop": false, "compress_cache": true'
    simpletuner sd3 "$sd3" "$edge"', "crop_style": "center", "crop_aspect": "square"'
    simpletuner flux "$flux" "$edge"', "crop_style": "corner", "crop_aspect": "preserve"'
    simpletuner chroma "$flux" "$edge"', "crop_style": "center", "crop_aspect": "closest", "crop_aspect_buckets": [1.0, 1.5, 0.67]'
    simpletuner lumina2 "$flux" "$area, $kept"', "minimum_image_size": 0.03, "maximum_aspect_ratio": 3'
    simpletuner z-image "$flux" "$area, $kept"', "maximum_image_size": 0.2, "target_downsample_size": 0.1'
    simpletuner flux2 "$flux2" "$edge"', "crop_style": "center", "crop_aspect": "square"'
    simpletuner flux2-klein-4b "$flux2" "$area, $kept"', "compress_cache": true'
    simpletuner flux2-klein-9b "$flux2" '"resolution": 256, "crop": false, "crop_style": "corner"'
    simpletuner qwen-image "$wan" "$area, $kept"
    simpletuner krea2 "$wan" '"resolution": 256, "resolution_type": "pixel", "crop": false, "crop_style": "center"'
    simpletuner wan21 "$wan" "$area, $kept"
fi
if [[ -n ${AI_TOOLKIT:-} ]]; then
    ai_toolkit sd1 sd15 "$sd15" "$sd15"
    ai_toolkit sdxl sdxl "$sdxl" "$sdxl"
    ai_toolkit sd3 sd3 "$sd3" "$sd3"
    ai_toolkit flux flux "$flux" "$flux"
    ai_toolkit flux_kontext flux "$flux" "$flux"
    ai_toolkit chroma chroma "$flux" "$flux"
    ai_toolkit lumina2 lumina2 "$flux" "$flux"
    ai_toolkit zimage z-image "$flux" "$flux"
    ai_toolkit flux2 flux2 "$flux2_original" "$flux2_original"
    ai_toolkit flux2_klein_4b flux2-klein-4b "$flux2" "$flux2_original"
    ai_toolkit flux2_klein_9b flux2-klein-9b "$flux2_original" "$flux2_original"
    ai_toolkit qwen_image qwen-image "$wan" "$wan"
    ai_toolkit krea2 krea2 "$wan_original" "$wan"
    ai_toolkit anima anima "$wan" "$wan"
    ai_toolkit wan21 wan21 "$wan_original" "$wan"
fi
exit "$failed"
