"""The rival of `prebake tokens`: tokens of the `text` column of a JSONL file by Python's `tokenizers`, counting alone timed.

    TOKENIZERS_PARALLELISM=true RAYON_NUM_THREADS=2 python tokens_rival.py tokenizer.json corpus.jsonl
"""

import json
import sys
import time

from tokenizers import Tokenizer

BATCH = 1000


def main(tokenizer, corpus):
    tokenizer = Tokenizer.from_file(tokenizer)
    with open(corpus, encoding="utf-8") as file:
        texts = [json.loads(line)["text"] for line in file]
    size = sum(len(text.encode()) for text in texts)
    start, tokens = time.perf_counter(), 0
    for i in range(0, len(texts), BATCH):
        batch = tokenizer.encode_batch_fast(texts[i : i + BATCH], add_special_tokens=False)
        tokens += sum(len(encoding) for encoding in batch)
    seconds = time.perf_counter() - start
    print(f"python: {len(texts)} texts, {tokens} tokens, {seconds:.2f} s, {size / seconds / 1e6:.1f} MB/s")


if __name__ == "__main__":
    main(*sys.argv[1:])
