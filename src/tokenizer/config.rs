//! What lies beside a `tokenizer.json`: special tokens, the chat template, the model's longest sequence.

use crate::error::{Error, IoContext, Result};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// Lengths from here on mean that none was set (transformers writes 1e30).
const UNSET: f64 = 1e9;

/// What `tokenizer_config.json`, `chat_template.jinja`, `special_tokens_map.json` and `config.json` say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// The token that begins a sequence, if the tokenizer has one.
    pub bos_token: Option<String>,
    /// The token that ends a sequence, if the tokenizer has one.
    pub eos_token: Option<String>,
    /// Other named special tokens, by name, for chat templates.
    pub named_tokens: Vec<(String, String)>,
    /// The chat template, in Jinja: `chat_template.jinja`, else the configuration's, of several the one called `default`.
    pub chat_template: Option<String>,
    /// The longest sequence, in tokens: `max_position_embeddings` of the model, else `model_max_length`.
    pub longest: Option<u32>,
}

impl Config {
    /// Reads what lies in `folder`; nothing where nothing does.
    ///
    /// # Errors
    /// A file that is there and cannot be read.
    pub(super) fn beside(folder: &Path) -> Result<Self> {
        let file = |name: &str| optional_json(&folder.join(name));
        let tokenizer = file("tokenizer_config.json")?;
        let map = file("special_tokens_map.json")?;
        let model = file("config.json")?;
        let token = |name: &str| text_of(&tokenizer[name]).or_else(|| text_of(&map[name]));
        let named = tokenizer.as_object().into_iter().flatten().filter(|(name, _)| name.ends_with("_token"));
        let template_file = folder.join("chat_template.jinja");
        let template = match fs::read_to_string(&template_file) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => template_of(&tokenizer["chat_template"]),
            Err(error) => return Err(error).at(&template_file),
        };
        let length = |value: &Value| value.as_f64().filter(|&n| (1.0..UNSET).contains(&n)).map(|n| n as u32);
        let positions = [&model["max_position_embeddings"], &model["text_config"]["max_position_embeddings"]];
        Ok(Self {
            bos_token: token("bos_token"),
            eos_token: token("eos_token"),
            named_tokens: named.filter_map(|(name, value)| Some((name.clone(), text_of(value)?))).collect(),
            chat_template: template,
            longest: positions.into_iter().find_map(length).or_else(|| length(&tokenizer["model_max_length"])),
        })
    }
}

fn optional_json(path: &Path) -> Result<Value> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Value::Null),
        Err(error) => return Err(error).at(path),
    };
    serde_json::from_str(&text).map_err(|error| Error::input(path, format!("is no valid JSON: {error}")))
}

/// A token as a text, or as an object with its `content`.
fn text_of(value: &Value) -> Option<String> {
    value.as_str().or_else(|| value["content"].as_str()).map(str::to_owned)
}

/// A template as a text, or a list of named ones.
fn template_of(value: &Value) -> Option<String> {
    let is_default = |entry: &&Value| entry["name"] == "default";
    let listed = value.as_array().and_then(|list| list.iter().find(is_default)?["template"].as_str());
    value.as_str().or(listed).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    #[test]
    fn the_file_wins_over_the_configuration_and_the_default_over_other_templates() {
        let folder = TempDir::new().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        assert_eq!(Config::beside(folder.path()).unwrap(), Config::default());
        write(
            "tokenizer_config.json",
            r#"{"bos_token": {"content": "<s>"}, "eos_token": "</s>", "model_max_length": 1e30, "chat_template":
                [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "plain"}]}"#,
        );
        let read = Config::beside(folder.path()).unwrap();
        assert_eq!((read.bos_token.as_deref(), read.eos_token.as_deref()), (Some("<s>"), Some("</s>")));
        assert_eq!((read.chat_template.as_deref(), read.longest), (Some("plain"), None));
        write("chat_template.jinja", "own file");
        write("config.json", r#"{"max_position_embeddings": 4096}"#);
        let read = Config::beside(folder.path()).unwrap();
        assert_eq!((read.chat_template.as_deref(), read.longest), (Some("own file"), Some(4096)));
        write("config.json", "{");
        assert!(Config::beside(folder.path()).unwrap_err().to_string().contains("is no valid JSON"));
    }
}
