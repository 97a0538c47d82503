//! JSON values that keep the order of their keys: templates write objects out, and order is tokens.

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// One JSON value.
#[derive(Clone, Debug, PartialEq)]
pub enum Json {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A whole number.
    Int(i128),
    /// A number with a fraction or an exponent.
    Float(f64),
    /// A text.
    Text(String),
    /// An array.
    List(Vec<Json>),
    /// An object; of equal keys the last wins, as in Python.
    Object(Vec<(String, Json)>),
}

impl Json {
    /// Parses one document.
    ///
    /// # Errors
    /// What is wrong, and at which byte.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(text).map_err(|error| {
            let what = error.to_string();
            // Rows are one line each: only the column says anything.
            let what = what.rsplit_once(" at line ").map_or(what.as_str(), |(what, _)| what);
            format!("is no JSON: {what} at column {}", error.column())
        })
    }

    /// The value of a key; none where this is no object or has no such key.
    pub fn get(&self, key: &str) -> Option<&Json> {
        let Self::Object(members) = self else { return None };
        members.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    /// The value of a key unless it is null.
    pub fn given(&self, key: &str) -> Option<&Json> {
        self.get(key).filter(|value| **value != Self::Null)
    }

    /// As a text.
    pub fn text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    /// As an array.
    pub fn list(&self) -> Option<&[Json]> {
        if let Self::List(items) = self { Some(items) } else { None }
    }

    /// What kind of value this is, in words.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Int(_) | Self::Float(_) => "a number",
            Self::Text(_) => "a text",
            Self::List(_) => "a list",
            Self::Object(_) => "an object",
        }
    }

    /// The keys of an object, in order.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        let members = if let Self::Object(members) = self { members.as_slice() } else { &[] };
        members.iter().map(|(name, _)| name.as_str())
    }
}

struct Any;

impl<'de> Visitor<'de> for Any {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
        Ok(Json::Int(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
        Ok(Json::Int(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Json, E> {
        Ok(Json::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Json, E> {
        Ok(Json::Text(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Json, E> {
        Ok(Json::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Json, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element()? {
            items.push(item);
        }
        Ok(Json::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Json, A::Error> {
        let mut members: Vec<(String, Json)> = Vec::new();
        while let Some((name, value)) = access.next_entry::<String, Json>()? {
            match members.iter_mut().find(|(known, _)| *known == name) {
                Some((_, old)) => *old = value,
                None => members.push((name, value)),
            }
        }
        Ok(Json::Object(members))
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Any)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_keep_their_order_and_the_last_of_equal_ones_wins() {
        let row = Json::parse(br#"{"z": 1, "a": [null, 2.5, "x"], "z": true}"#).unwrap();
        assert_eq!(row.keys().collect::<Vec<_>>(), ["z", "a"]);
        assert_eq!(row.get("z"), Some(&Json::Bool(true)));
        assert_eq!(row.get("a").unwrap().list().unwrap()[1], Json::Float(2.5));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_column() {
        assert_eq!(Json::parse(b"{\"a\": }").unwrap_err(), "is no JSON: expected value at column 7");
        assert_eq!(Json::parse(b"").unwrap_err(), "is no JSON: EOF while parsing a value at column 0");
    }
}
