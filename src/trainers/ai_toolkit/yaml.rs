//! A YAML document as a JSON value, with the scalars of YAML 1.1 that PyYAML knows, since the trainer reads with it.
//!
//! Refuses more than [`MOST_NODES`] nodes once aliases are followed, so that a few lines cannot ask for all memory.

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span, SpannedEventReceiver};
use serde_json::{Map, Number, Value};
use std::collections::HashMap;

/// Nodes of a document, those behind aliases counted each time.
const MOST_NODES: usize = 100_000;

/// Nested lists and tables.
const DEEPEST: usize = 64;

/// Reads the first document of `text`; the error is one line that names the place.
pub(super) fn read(text: &str) -> Result<Value, String> {
    let mut builder = Builder::default();
    let mut parser = Parser::new_from_str(text);
    parser.load(&mut builder, false).map_err(|error: ScanError| {
        let at = error.marker();
        format!("{} at line {}", error.info(), at.line())
    })?;
    match builder.trouble {
        Some(trouble) => Err(trouble),
        None => Ok(builder.document.unwrap_or(Value::Null)),
    }
}

/// A list or a table that is not complete.
struct Open {
    anchor: usize,
    node: Node,
}

enum Node {
    List(Vec<Value>),
    Table { map: Map<String, Value>, key: Option<String> },
}

#[derive(Default)]
struct Builder {
    open: Vec<Open>,
    anchors: HashMap<usize, Value>,
    nodes: usize,
    document: Option<Value>,
    trouble: Option<String>,
}

impl<'input> SpannedEventReceiver<'input> for Builder {
    fn on_event(&mut self, event: Event<'input>, span: Span) {
        if self.trouble.is_some() {
            return;
        }
        let line = span.start.line();
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let plain = style == ScalarStyle::Plain && tag.is_none();
                let value = if plain { scalar(&text) } else { Value::String(text.into_owned()) };
                self.complete(value, anchor, line);
            }
            Event::Alias(anchor) => match self.anchors.get(&anchor).cloned() {
                Some(value) => self.complete(value, 0, line),
                None => self.trouble = Some(format!("an alias stands inside of what it names at line {line}")),
            },
            Event::SequenceStart(anchor, _) => self.begin(anchor, Node::List(Vec::new()), line),
            Event::MappingStart(anchor, _) => self.begin(anchor, Node::Table { map: Map::new(), key: None }, line),
            Event::SequenceEnd | Event::MappingEnd => self.end(line),
            _ => {}
        }
    }
}

impl Builder {
    fn begin(&mut self, anchor: usize, node: Node, line: usize) {
        if self.open.len() >= DEEPEST {
            self.trouble = Some(format!("is nested more than {DEEPEST} deep at line {line}"));
        }
        self.open.push(Open { anchor, node });
    }

    fn end(&mut self, line: usize) {
        let Some(Open { anchor, node }) = self.open.pop() else { return };
        let value = match node {
            Node::List(list) => Value::Array(list),
            Node::Table { map, .. } => Value::Object(map),
        };
        self.complete(value, anchor, line);
    }

    /// Puts a complete node where it belongs.
    fn complete(&mut self, value: Value, anchor: usize, line: usize) {
        self.nodes += size(&value);
        if self.nodes > MOST_NODES {
            self.trouble = Some(format!("holds more than {MOST_NODES} values by line {line}"));
            return;
        }
        if anchor != 0 {
            self.anchors.insert(anchor, value.clone());
        }
        match self.open.last_mut().map(|open| &mut open.node) {
            None => self.document = self.document.take().or(Some(value)),
            Some(Node::List(list)) => list.push(value),
            Some(Node::Table { map, key }) => match key.take() {
                None => match key_text(value) {
                    Some(text) => *key = Some(text),
                    None => self.trouble = Some(format!("a list or table is a key at line {line}")),
                },
                Some(key) => put(map, key, value),
            },
        }
    }
}

/// `<<` takes over the keys of other tables that this one has not; of two equal keys the last counts.
fn put(map: &mut Map<String, Value>, key: String, value: Value) {
    let tables = match value {
        Value::Object(table) if key == "<<" => vec![Value::Object(table)],
        Value::Array(tables) if key == "<<" => tables,
        value => {
            map.insert(key, value);
            return;
        }
    };
    for table in tables {
        if let Value::Object(table) = table {
            for (key, value) in table {
                map.entry(key).or_insert(value);
            }
        }
    }
}

fn key_text(value: Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text),
        Value::Array(_) | Value::Object(_) => None,
        other => Some(other.to_string()),
    }
}

fn size(value: &Value) -> usize {
    match value {
        Value::Array(list) => 1 + list.iter().map(size).sum::<usize>(),
        Value::Object(map) => 1 + map.values().map(size).sum::<usize>(),
        _ => 1,
    }
}

/// A plain scalar as YAML 1.1 types it; sexagesimals, octals and dates stay texts, which no key read here has.
fn scalar(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => return Value::Bool(true),
        "false" | "False" | "FALSE" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => return Value::Bool(false),
        _ => {}
    }
    let digits = text.replace('_', "");
    let starts_as_a_number = digits.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.'));
    if let Some(number) = starts_as_a_number.then(|| number(&digits)).flatten() {
        return Value::Number(number);
    }
    Value::String(text.to_owned())
}

/// A leading zero makes an octal number, which is left a text; an exponent needs a point before it.
fn number(digits: &str) -> Option<Number> {
    let unsigned = digits.trim_start_matches(['-', '+']);
    if unsigned.len() > 1 && unsigned.starts_with('0') && unsigned.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let whole = digits.strip_prefix('+').unwrap_or(digits).parse::<i64>().ok().map(Number::from);
    let real = || digits.contains('.').then(|| digits.parse::<f64>().ok()).flatten().and_then(Number::from_f64);
    whole.or_else(real)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn scalars_are_typed_as_pyyaml_types_them() {
        let text = "[512, 1.5, .5, -3, +4, yes, Off, ~, 'yes', \"12\", 1_024, 007, 1e3, 2020-01-01, a b]";
        let expected =
            json!([512, 1.5, 0.5, -3, 4, true, false, null, "yes", "12", 1024, "007", "1e3", "2020-01-01", "a b"]);
        assert_eq!(read(text).unwrap(), expected);
    }

    #[test]
    fn anchors_and_merge_keys_are_followed() {
        let text = "base: &base\n  a: 1\n  b: 2\nsets:\n  - <<: *base\n    b: 3\n  - *base\n";
        let base = json!({"a": 1, "b": 2});
        assert_eq!(read(text).unwrap(), json!({"base": base, "sets": [{"a": 1, "b": 3}, base]}));
    }

    #[test]
    fn a_document_that_explodes_or_hides_in_itself_is_refused() {
        let mut text = String::from("a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n");
        for level in 1..9 {
            let before = vec![format!("*a{}", level - 1); 10].join(", ");
            text.push_str(&format!("a{level}: &a{level} [{before}]\n"));
        }
        assert!(read(&text).unwrap_err().starts_with("holds more than 100000 values"));
        assert!(read("a: &a [*a]").unwrap_err().contains("inside of what it names"));
        assert!(read(&"[".repeat(200)).is_err());
        assert!(read("a: [1").unwrap_err().contains("line"));
    }
}
