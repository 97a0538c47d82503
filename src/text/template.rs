//! Chat templates, rendered as transformers' `apply_chat_template` does: Jinja with trimmed blocks, Python's methods, and
//! the functions that templates count on.

use super::json::Json;
use crate::hash::TextHash;
use chrono::NaiveDateTime;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Environment, Error, ErrorKind, Value};
use std::fmt::Write;

/// The template that `--chat-template chatml` names: ChatML, without a default system message.
pub const CHATML: &str = "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + \
                          '<|im_end|>' + '\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}\
                          {% endif %}";

const NAME: &str = "chat";

/// A compiled chat template.
pub struct Template {
    environment: Environment<'static>,
    tokens: Vec<(String, String)>,
    /// Of its source, the special tokens and the day that it may write.
    pub hash: TextHash,
}

impl Template {
    /// Compiles `source`; `tokens` are the special tokens that it may name, such as (`bos_token`, `<s>`), `now` the time
    /// that `strftime_now` tells.
    ///
    /// # Errors
    /// What is wrong with the template, and in which line.
    pub fn new(source: &str, tokens: &[(String, String)], now: NaiveDateTime) -> Result<Self, String> {
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.map_err(|error| error.to_string())?);
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_function("raise_exception", |message: String| -> Result<Value, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, message))
        });
        environment.add_function("strftime_now", move |format: String| now.format(&format).to_string());
        environment.add_filter("tojson", tojson);
        let is_dated = source.contains("strftime_now");
        let source = without_generation_tags(source);
        environment.add_template_owned(NAME, source.clone()).map_err(|error| told(&error))?;
        let mut hashed = source;
        tokens.iter().for_each(|(name, token)| hashed.push_str(&format!("\0{name}\0{token}")));
        if is_dated {
            hashed.push_str(&now.date().to_string());
        }
        Ok(Self { environment, tokens: tokens.to_vec(), hash: TextHash::of(hashed.as_bytes()) })
    }

    /// Renders a conversation; with `prompt`, up to where the assistant's next answer begins.
    ///
    /// # Errors
    /// What the template says against it, such as roles that do not alternate.
    pub fn render(&self, messages: &[Json], tools: Option<&Json>, prompt: bool) -> Result<String, String> {
        let messages: Vec<Value> = messages.iter().map(value_of).collect();
        let mut variables = vec![
            ("messages".to_owned(), Value::from(messages)),
            ("tools".to_owned(), tools.map_or(Value::from(()), value_of)),
            ("documents".to_owned(), Value::from(())),
            ("add_generation_prompt".to_owned(), Value::from(prompt)),
        ];
        variables.extend(self.tokens.iter().map(|(name, token)| (name.clone(), Value::from(token.as_str()))));
        let template = self.environment.get_template(NAME).map_err(|error| told(&error))?;
        template.render(Value::from_pairs(variables)).map_err(|error| told(&error))
    }
}

/// The message of a template's own exception, else what the engine says, in one line.
fn told(error: &Error) -> String {
    match (error.detail(), error.line()) {
        (Some(detail), _) if error.kind() == ErrorKind::InvalidOperation => detail.to_owned(),
        (detail, Some(line)) => {
            format!("{}: {} in its line {line}", error.kind(), detail.unwrap_or("no more is known"))
        }
        (detail, None) => format!("{}: {}", error.kind(), detail.unwrap_or("no more is known")),
    }
}

/// `{% generation %}` marks what the assistant wrote, for masks; for the text it is nothing. An `if` keeps the blanks
/// that its tag would trim.
fn without_generation_tags(source: &str) -> String {
    let mut text = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let Some(end) = rest[start..].find("%}").map(|length| start + length + 2) else { break };
        let (before, tag) = (&rest[..start], &rest[start..end]);
        text.push_str(before);
        let name = tag[2..tag.len() - 2].trim_matches(['-', '+']).trim();
        match name {
            "generation" => text.push_str(&tag.replacen("generation", "if true", 1)),
            "endgeneration" => text.push_str(&tag.replacen("endgeneration", "endif", 1)),
            _ => text.push_str(tag),
        }
        rest = &rest[end..];
    }
    text + rest
}

fn value_of(json: &Json) -> Value {
    match json {
        Json::Null => Value::from(()),
        Json::Bool(value) => Value::from(*value),
        Json::Int(value) => Value::from(*value),
        Json::Float(value) => Value::from(*value),
        Json::Text(text) => Value::from(text.as_str()),
        Json::List(items) => Value::from(items.iter().map(value_of).collect::<Vec<_>>()),
        Json::Object(members) => Value::from_pairs(members.iter().map(|(name, value)| (name.clone(), value_of(value)))),
    }
}

/// Python's `json.dumps` with `ensure_ascii=False`, which transformers puts in place of Jinja's own filter.
fn tojson(value: Value, options: Kwargs) -> Result<Value, Error> {
    let indent: Option<usize> = options.get("indent")?;
    let _: Option<bool> = options.get("ensure_ascii")?;
    let sorted: Option<bool> = options.get("sort_keys")?;
    options.assert_all_used()?;
    let mut text = String::new();
    dump(&value, indent, 0, sorted.unwrap_or(false), &mut text)?;
    Ok(Value::from_safe_string(text))
}

fn dump(value: &Value, indent: Option<usize>, depth: usize, sorted: bool, out: &mut String) -> Result<(), Error> {
    match value.kind() {
        ValueKind::Undefined | ValueKind::None => out.push_str("null"),
        ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number => out.push_str(&value.to_string()),
        ValueKind::Map => {
            let mut members = Vec::new();
            for key in value.try_iter()? {
                members.push((key.to_string(), value.get_item(&key)?));
            }
            if sorted {
                members.sort_by(|(a, _), (b, _)| a.cmp(b));
            }
            enclosed(out, ['{', '}'], &members, indent, depth, |(name, member), out| {
                quote(name, out);
                out.push_str(": ");
                dump(member, indent, depth + 1, sorted, out)
            })?;
        }
        ValueKind::Seq | ValueKind::Iterable => {
            let items: Vec<Value> = value.try_iter()?.collect();
            enclosed(out, ['[', ']'], &items, indent, depth, |item, out| dump(item, indent, depth + 1, sorted, out))?;
        }
        _ => quote(&value.to_string(), out),
    }
    Ok(())
}

fn enclosed<T>(
    out: &mut String,
    [open, close]: [char; 2],
    members: &[T],
    indent: Option<usize>,
    depth: usize,
    mut write: impl FnMut(&T, &mut String) -> Result<(), Error>,
) -> Result<(), Error> {
    out.push(open);
    let line = |out: &mut String, depth: usize| {
        if let Some(indent) = indent {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', indent * depth));
        }
    };
    for (i, member) in members.iter().enumerate() {
        if i > 0 {
            out.push_str(if indent.is_some() { "," } else { ", " });
        }
        line(out, depth + 1);
        write(member, out)?;
    }
    if !members.is_empty() {
        line(out, depth);
    }
    out.push(close);
    Ok(())
}

/// A text as Python quotes it: control characters by their short names, the rest of them as `\u00XX`.
fn quote(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if c < ' ' => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(source: &str) -> Template {
        let now = NaiveDateTime::parse_from_str("2026-12-07 10:00:00", "%Y-%m-%d %H:%M:%S").unwrap();
        Template::new(source, &[("bos_token".into(), "<s>".into())], now).unwrap()
    }

    fn render(source: &str, messages: &str) -> Result<String, String> {
        let messages = Json::parse(messages.as_bytes()).unwrap();
        template(source).render(messages.list().unwrap(), None, false)
    }

    const HI: &str = r#"[{"role": "user", "content": "hi & <b>", "z": {"b": 1, "a": [1.0, null, "é\n"]}}]"#;

    #[test]
    fn objects_are_written_as_python_writes_them() {
        assert_eq!(render("{{ messages[0].z | tojson }}", HI).unwrap(), r#"{"b": 1, "a": [1.0, null, "é\n"]}"#);
        let indented = "{\n  \"b\": 1,\n  \"a\": [\n    1.0,\n    null,\n    \"é\\n\"\n  ]\n}";
        assert_eq!(render("{{ messages[0].z | tojson(indent=2) }}", HI).unwrap(), indented);
        assert_eq!(render("{{ messages[0].content | tojson }}", HI).unwrap(), r#""hi & <b>""#);
    }

    #[test]
    fn blocks_are_trimmed_and_generation_tags_leave_nothing() {
        let source = "{{ bos_token }}\n{% for m in messages %}\n  {%- generation %}\n[{{ m['content'].strip() }}]\n  \
                      {% endgeneration %}\n{% endfor %}\nend {{ strftime_now('%d %b %Y') }}";
        assert_eq!(render(source, HI).unwrap(), "<s>\n[hi & <b>]\nend 07 Dec 2026");
    }

    #[test]
    fn a_templates_exception_is_told_in_its_words() {
        let source = "{% if messages[0].role != 'system' %}{{ raise_exception('begin with system') }}{% endif %}";
        assert_eq!(render(source, HI).unwrap_err(), "begin with system");
        assert!(Template::new("{% for %}", &[], NaiveDateTime::default()).err().unwrap().contains("syntax error"));
    }

    #[test]
    fn chatml_is_what_it_is_known_to_be() {
        let messages = Json::parse(br#"[{"role": "user", "content": "hi"}]"#).unwrap();
        let text = template(CHATML).render(messages.list().unwrap(), None, true).unwrap();
        assert_eq!(text, "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
    }
}
