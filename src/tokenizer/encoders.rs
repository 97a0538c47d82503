//! Text encoders of the model families, and how many tokens of a caption each of them sees.
//!
//! Limits are those of the trainers: CLIP's window of 77 holds 75 tokens between its two special ones, and sd-scripts cuts
//! captions for SD 1.5 and SDXL into up to three such windows; T5 and language models count their end token
//! (`strategy_sd.py`, `strategy_flux.py:24`, `strategy_sd3.py:27`, `strategy_lumina.py`, musubi-tuner's `wan/configs`).

use super::BuiltIn;
use crate::recipe::Family;

/// One text encoder of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextEncoder {
    /// As reports have it.
    pub name: &'static str,
    /// Its tokenizer, where it is in the binary.
    pub tokenizer: Option<BuiltIn>,
    /// Content tokens that it sees: special ones not counted.
    pub limit: u32,
    /// Special tokens around them.
    pub specials: u32,
    /// True where a trainer can be told to read several windows of `limit` tokens.
    pub windows: bool,
}

const fn clip(name: &'static str, windows: bool) -> TextEncoder {
    TextEncoder { name, tokenizer: Some(BuiltIn::Clip), limit: 75, specials: 2, windows }
}

const fn t5(length: u32) -> TextEncoder {
    TextEncoder { name: "t5-xxl", tokenizer: Some(BuiltIn::T5), limit: length - 1, specials: 1, windows: false }
}

const fn other(name: &'static str, limit: u32, specials: u32) -> TextEncoder {
    TextEncoder { name, tokenizer: None, limit, specials, windows: false }
}

/// The text encoders of `family`, in the order in which the family has them.
pub fn of(family: Family) -> Vec<TextEncoder> {
    match family {
        Family::Sd15 => vec![clip("clip-l", true)],
        Family::Sdxl => vec![clip("clip-l", true), clip("clip-g", true)],
        Family::Sd3 => vec![clip("clip-l", false), clip("clip-g", false), t5(256)],
        Family::Flux => vec![clip("clip-l", false), t5(512)],
        Family::Chroma => vec![t5(512)],
        Family::Lumina2 => vec![other("gemma-2", 255, 1)],
        Family::ZImage => vec![other("qwen3", 512, 0)],
        Family::Flux2 => vec![other("mistral", 512, 0)],
        Family::Flux2Klein4b | Family::Flux2Klein9b => vec![other("qwen3", 512, 0)],
        Family::QwenImage => vec![other("qwen2.5-vl", 1024, 0)],
        Family::Krea2 => vec![other("qwen3-vl", 512, 0)],
        Family::Anima => vec![other("qwen3", 512, 0), t5(512)],
        Family::Wan21 => vec![other("umt5-xxl", 511, 1)],
        Family::HunyuanImage => vec![other("qwen2.5-vl", 1024, 0), other("byt5", 127, 1)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clip_sees_75_tokens_between_its_two_and_t5_one_less_than_its_length() {
        assert_eq!(
            of(Family::Sdxl).iter().map(|e| (e.name, e.limit)).collect::<Vec<_>>(),
            [("clip-l", 75), ("clip-g", 75)]
        );
        assert_eq!(of(Family::Flux)[1].limit, 511);
        assert_eq!(of(Family::Sd3)[2].limit + of(Family::Sd3)[2].specials, 256);
    }
}
