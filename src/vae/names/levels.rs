//! Names that say level and layer.
//!
//! Three styles are known, and KL encoders come in all. Original (LDM) keys, HunyuanImage's too: `encoder.down.0.block.0`, `encoder.mid.attn_1.q`, `encoder.norm_out`.
//! Present diffusers keys: `encoder.down_blocks.0.resnets.0`, `…attentions.0.to_q`. Diffusers' attention before
//! version 0.15: `…attentions.0.query`. The correspondence is that of diffusers'
//! `convert_ldm_vae_checkpoint` and `AttentionBlock`'s deprecated names. Flux.2's original keys have the 1×1 convolution
//! behind the encoder inside of it.

/// The diffusers name of a tensor of the encoder; a name of no known style is returned as it is.
pub(super) fn canonical(name: &str) -> String {
    let parts: Vec<&str> = name.split('.').collect();
    match parts.as_slice() {
        ["encoder", "down", level, "block", layer, rest @ ..] => {
            let rest = rest.join(".").replace("nin_shortcut", "conv_shortcut");
            format!("encoder.down_blocks.{level}.resnets.{layer}.{rest}")
        }
        ["encoder", "down", level, "downsample", rest @ ..] => {
            format!("encoder.down_blocks.{level}.downsamplers.0.{}", rest.join("."))
        }
        ["encoder", "mid", "block_1", rest @ ..] => format!("encoder.mid_block.resnets.0.{}", rest.join(".")),
        ["encoder", "mid", "block_2", rest @ ..] => format!("encoder.mid_block.resnets.1.{}", rest.join(".")),
        ["encoder", "mid", "attn_1", part, rest] | ["encoder", "mid_block", "attentions", "0", part, rest] => {
            format!("encoder.mid_block.attentions.0.{}.{rest}", attention_part(part))
        }
        ["encoder", "quant_conv", rest] => format!("quant_conv.{rest}"),
        ["encoder", "norm_out", rest] => format!("encoder.conv_norm_out.{rest}"),
        _ => name.to_owned(),
    }
}

fn attention_part(part: &str) -> &str {
    match part {
        "norm" => "group_norm",
        "q" | "query" => "to_q",
        "k" | "key" => "to_k",
        "v" | "value" => "to_v",
        "proj" | "proj_out" | "proj_attn" => "to_out.0",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_style_leads_to_the_same_name() {
        let table = [
            ("encoder.down.1.block.0.nin_shortcut.weight", "encoder.down_blocks.1.resnets.0.conv_shortcut.weight"),
            ("encoder.down.0.block.1.norm2.bias", "encoder.down_blocks.0.resnets.1.norm2.bias"),
            ("encoder.down.2.downsample.conv.weight", "encoder.down_blocks.2.downsamplers.0.conv.weight"),
            ("encoder.mid.block_2.conv1.weight", "encoder.mid_block.resnets.1.conv1.weight"),
            ("encoder.mid.attn_1.norm.weight", "encoder.mid_block.attentions.0.group_norm.weight"),
            ("encoder.mid.attn_1.proj_out.bias", "encoder.mid_block.attentions.0.to_out.0.bias"),
            ("encoder.mid_block.attentions.0.query.weight", "encoder.mid_block.attentions.0.to_q.weight"),
            ("encoder.mid_block.attentions.0.proj_attn.weight", "encoder.mid_block.attentions.0.to_out.0.weight"),
            ("encoder.norm_out.weight", "encoder.conv_norm_out.weight"),
            ("encoder.quant_conv.weight", "quant_conv.weight"),
        ];
        for (name, expected) in table {
            assert_eq!(canonical(name), expected);
            assert_eq!(canonical(expected), expected, "canonical names stay");
        }
    }
}
