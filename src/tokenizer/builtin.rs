//! Tokenizers inside the binary, so that captions need no download. Sources and licences: `assets/LICENSES.md`.

use serde_json::{Value, json};

/// A tokenizer that comes with prebake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BuiltIn {
    /// CLIP's: of SD 1.5, SDXL, and the first of SD3's and Flux's.
    Clip,
    /// T5 v1.1's: of SD3, Flux, Chroma.
    T5,
}

impl BuiltIn {
    /// As the command line has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Clip => "clip",
            Self::T5 => "t5",
        }
    }

    /// The one of this name.
    pub fn named(name: &str) -> Option<Self> {
        [Self::Clip, Self::T5].into_iter().find(|built_in| built_in.name() == name)
    }

    /// Its `tokenizer.json`.
    pub(super) fn json(self) -> String {
        match self {
            Self::Clip => clip(&unpacked(include_bytes!("../../assets/clip-merges.txt.zst"))).to_string(),
            Self::T5 => unpacked(include_bytes!("../../assets/t5-tokenizer.json.zst")),
        }
    }
}

fn unpacked(packed: &[u8]) -> String {
    let bytes = zstd::decode_all(packed).expect("an asset of the binary is whole");
    String::from_utf8(bytes).expect("an asset of the binary is UTF-8")
}

/// The 256 characters that stand for the bytes in byte-level BPE, in the order of CLIP's vocabulary: printable ones for
/// themselves, then those above 255 for the rest.
fn byte_characters() -> Vec<char> {
    let printable = (b'!'..=b'~').chain(0xa1..=0xac).chain(0xae..=0xff).map(char::from);
    printable.chain((0x100..0x144).filter_map(char::from_u32)).collect()
}

/// CLIP's tokenizer out of its merges, with the steps that transformers' `CLIPTokenizer` takes: the vocabulary is the
/// bytes, the bytes at a word's end, the merges in order and two special tokens, 49,408 in all.
fn clip(merges: &str) -> Value {
    let merges: Vec<[&str; 2]> = merges.lines().filter_map(|line| line.split_once(' ')).map(|(a, b)| [a, b]).collect();
    let bytes = byte_characters();
    let words = bytes.iter().map(|c| c.to_string()).chain(bytes.iter().map(|c| format!("{c}</w>")));
    let words = words.chain(merges.iter().map(|pair| pair.concat()));
    let words = words.chain(["<|startoftext|>".to_owned(), "<|endoftext|>".to_owned()]);
    let vocab: serde_json::Map<_, _> = words.enumerate().map(|(id, word)| (word, json!(id))).collect();
    let (start, end) = (vocab["<|startoftext|>"].clone(), vocab["<|endoftext|>"].clone());
    let special = |id: &Value, content: &str| {
        json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false, "normalized": true,
            "special": true})
    };
    json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": [special(&start, "<|startoftext|>"), special(&end, "<|endoftext|>")],
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "NFC"},
            {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "},
            {"type": "Lowercase"},
        ]},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"},
                "behavior": "Removed", "invert": true},
            {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        ]},
        "post_processor": {"type": "RobertaProcessing", "sep": ["<|endoftext|>", end], "cls": ["<|startoftext|>", start],
            "trim_offsets": false, "add_prefix_space": false},
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "dropout": null, "unk_token": "<|endoftext|>", "continuing_subword_prefix": "",
            "end_of_word_suffix": "</w>", "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
            "vocab": vocab, "merges": merges},
    })
}
