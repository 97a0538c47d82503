"""Makes bpe.json, a small byte-level BPE in the shape of Qwen's, counts.json, what tokenizers counts for odd texts, and
rows.parquet, three rows.

    python make.py      (needs tokenizers and pyarrow; counted with tokenizers 0.21)

bpe.json is trained on these scripts' own words, so it holds nobody else's text.
"""

import json
import random
from pathlib import Path

import pyarrow
from pyarrow import parquet
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = Path(__file__).parent
PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def train():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    split = pre_tokenizers.Split(Regex(PATTERN), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    corpus = [path.read_text() for path in sorted(HERE.parent.rglob("*.py"))]
    tokenizer.train_from_iterator(corpus, trainer)
    special = [AddedToken(name, special=True, normalized=False) for name in ("<|im_start|>", "<|im_end|>", "<|end|>")]
    tokenizer.add_special_tokens(special)
    tokenizer.save(str(HERE / "bpe.json"), pretty=False)
    return tokenizer


def texts():
    random.seed(7)
    words = ["cat", "cats'", "déjà", "vu", "日本語", "👍🏽", "Straße", "e\u0301", "\u00a0", "x_y", "3.14", "don't", "<b>", "&amp;"]
    words += ["<|im_end|>", "\u200b", "\u3000", "ﬁ", "－", "tag0", "(a:1.2)", "\u0301", "ÀÉ", "ΣΑΣ", "İ", "..."]
    yield from ("", " ", "\n", "a", "  a  ", "a\n\n b\t c", "\u0301", "a \u0301b", "👍 👍", "1girl, solo, long_hair")
    for _ in range(120):
        glue = random.choice([" ", "  ", ", ", "\n", " \n", "\t", ""])
        yield glue.join(random.choice(words) for _ in range(random.randint(1, 24))) + random.choice(["", " ", "\n"])


def main():
    tokenizer = train()
    rows = [[text, len(tokenizer.encode(text, add_special_tokens=False))] for text in texts()]
    columns = {"id": [1, 2, 3], "text": ['one, "two"', "three\nfour", "five"]}
    columns["extra"] = pyarrow.array([[{"a": 1}], None, []])
    parquet.write_table(pyarrow.table(columns), HERE / "rows.parquet", compression="snappy")
    (HERE / "counts.json").write_text(json.dumps({"bpe": rows}, ensure_ascii=True))


if __name__ == "__main__":
    main()
