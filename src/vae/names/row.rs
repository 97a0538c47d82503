//! Names that number all resnets and downsamplers in one row: Wan 2.1's, original and of diffusers, and diffusers' of
//! HunyuanImage.
//!
//! A level's resnets come first, then its downsampler; in the last level there is none. The correspondence is that of
//! the modules' order in diffusers' `WanEncoder3d` and `HunyuanImageEncoder2D`, and in Wan's own `Encoder3d`.

/// The canonical name of a tensor whose row has `per_level` entries a level; `None` for what no picture meets. A name of
/// no known style is returned as it is.
pub(super) fn canonical(name: &str, per_level: usize) -> Option<String> {
    let parts: Vec<&str> = name.split('.').collect();
    Some(match parts.as_slice() {
        // Between chunks of frames only: a picture is the first.
        ["encoder", "down_blocks" | "downsamples", _, "time_conv", _] => return None,
        ["encoder", "down_blocks" | "downsamples", index, rest @ ..] => match index.parse::<usize>() {
            Ok(index) => in_level(index / per_level, index % per_level, per_level, &layer(rest)),
            Err(_) => name.to_owned(),
        },
        ["encoder", "mid_block", "resnets", index, rest @ ..] => {
            format!("encoder.mid_block.resnets.{index}.{}", layer(rest))
        }
        ["encoder", "middle", "0", rest @ ..] => format!("encoder.mid_block.resnets.0.{}", layer(rest)),
        ["encoder", "middle", "2", rest @ ..] => format!("encoder.mid_block.resnets.1.{}", layer(rest)),
        ["encoder", "mid_block", "attentions", "0", part, rest] | ["encoder", "middle", "1", part, rest] => {
            format!("encoder.mid_block.attentions.0.{}.{}", attention_part(part), kind(rest))
        }
        ["encoder", "norm_out", rest] | ["encoder", "head", "0", rest] => {
            format!("encoder.conv_norm_out.{}", kind(rest))
        }
        ["encoder", "head", "2", rest] => format!("encoder.conv_out.{rest}"),
        ["encoder", "conv1", rest] => format!("encoder.conv_in.{rest}"),
        ["conv1", rest] => format!("quant_conv.{rest}"),
        _ => name.to_owned(),
    })
}

fn in_level(level: usize, place: usize, per_level: usize, rest: &str) -> String {
    if place + 1 == per_level {
        format!("encoder.down_blocks.{level}.downsamplers.0.{rest}")
    } else {
        format!("encoder.down_blocks.{level}.resnets.{place}.{rest}")
    }
}

/// What is inside a resnet or a downsampler. Wan's own resnets are a sequence of norm, SiLU, convolution, norm, SiLU,
/// dropout, convolution; its downsamplers one of padding and convolution.
fn layer(parts: &[&str]) -> String {
    match parts {
        ["residual", "0", rest] => format!("norm1.{}", kind(rest)),
        ["residual", "2", rest] => format!("conv1.{rest}"),
        ["residual", "3", rest] => format!("norm2.{}", kind(rest)),
        ["residual", "6", rest] => format!("conv2.{rest}"),
        ["shortcut", rest] => format!("conv_shortcut.{rest}"),
        ["resample", "1", rest] => format!("conv.{rest}"),
        [part, rest] => format!("{part}.{}", kind(rest)),
        other => other.join("."),
    }
}

fn kind(part: &str) -> &str {
    if part == "gamma" { "weight" } else { part }
}

fn attention_part(part: &str) -> &str {
    match part {
        "norm" => "group_norm",
        "proj" => "to_out.0",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_told_apart_into_levels() {
        let table = [
            ("encoder.conv1.weight", "encoder.conv_in.weight"),
            ("encoder.downsamples.0.residual.0.gamma", "encoder.down_blocks.0.resnets.0.norm1.weight"),
            ("encoder.down_blocks.1.norm2.gamma", "encoder.down_blocks.0.resnets.1.norm2.weight"),
            ("encoder.downsamples.2.resample.1.bias", "encoder.down_blocks.0.downsamplers.0.conv.bias"),
            ("encoder.down_blocks.2.conv.bias", "encoder.down_blocks.0.downsamplers.0.conv.bias"),
            ("encoder.downsamples.3.shortcut.weight", "encoder.down_blocks.1.resnets.0.conv_shortcut.weight"),
            ("encoder.down_blocks.10.conv2.weight", "encoder.down_blocks.3.resnets.1.conv2.weight"),
            ("encoder.middle.1.to_qkv.weight", "encoder.mid_block.attentions.0.to_qkv.weight"),
            ("encoder.mid_block.attentions.0.norm.gamma", "encoder.mid_block.attentions.0.group_norm.weight"),
            ("encoder.middle.2.residual.6.bias", "encoder.mid_block.resnets.1.conv2.bias"),
            ("encoder.head.0.gamma", "encoder.conv_norm_out.weight"),
            ("encoder.head.2.bias", "encoder.conv_out.bias"),
            ("conv1.bias", "quant_conv.bias"),
        ];
        for (name, expected) in table {
            assert_eq!(canonical(name, 3).as_deref(), Some(expected), "{name}");
        }
        assert_eq!(canonical("encoder.downsamples.5.time_conv.weight", 3), None);
    }
}
