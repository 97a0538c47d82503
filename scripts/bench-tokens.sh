#!/usr/bin/env bash
# Counts the same corpus by `prebake tokens` and by Python's tokenizers, in turns on two threads, three times.
#
#     PYTHON=python scripts/bench-tokens.sh corpus.jsonl TOKENIZER.json…
#
# The corpus has rows with a column `text`. prebake is timed as a whole process, loading and parsing included, and again on
# the first ten rows, which is mostly loading; Python's loading and parsing is not timed. The numbers of tokens must be
# the same, but for those that a tokenizer puts around each text.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
corpus=${1:?"usage: scripts/bench-tokens.sh corpus.jsonl TOKENIZER.json…"}
shift
(cd "$root" && cargo build --release --locked --quiet)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
ln -s "$(realpath "$corpus")" "$work/all.jsonl"
head -n 10 "$corpus" >"$work/few.jsonl"

# once FILE TOKENIZER: seconds and megabytes of one run that remembers nothing.
once() {
    rm -rf "$work/.prebake"
    TIMEFORMAT='%R s'
    time "$root/target/release/prebake" tokens "$1" --tokenizer "$2" --field text --no-eos --json --quiet --threads 2 |
        grep -E '"(n|total|engine)":' | head -n 3 | tr -d ' \n'
}

for tokenizer in "$@"; do
    for _ in 1 2 3; do
        echo "$tokenizer: all $(once "$work/all.jsonl" "$tokenizer" 2>&1)"
        echo "$tokenizer: few $(once "$work/few.jsonl" "$tokenizer" 2>&1)"
        TOKENIZERS_PARALLELISM=true RAYON_NUM_THREADS=2 "${PYTHON:-python3}" "$root/benches/tokens_rival.py" "$tokenizer" "$corpus"
    done
done
