//! One row's length: what a trainer would make of it, counted.
//!
//! Definitions. Chat: the template's text for all messages, special tokens included, no others added. Alpaca, prompts
//! with completions and preferences: prompt and answer encoded apart, as trainers do, with the token that begins a
//! sequence where the tokenizer adds one, and one that ends it. Text: the same around the text. Segments: as they stand.
//! Tokenised rows: as they are.

use super::json::Json;
use super::shape::{COMPLETIONS, PROMPTS, Shape, TEXTS, first_of};
use super::template::Template;
use crate::lengths::{Answer, Example};
use crate::problem::Kind;
use crate::tokenizer::Tokenizer;
use std::borrow::Cow;

/// Label of tokens that are not trained on.
const IGNORED: i128 = -100;

/// Why a row gives no example.
pub(super) type Refused = (Kind, String);

/// What is needed to count a row.
pub(super) struct Counting<'a> {
    /// The tokenizer.
    pub(super) tokenizer: &'a Tokenizer,
    /// How conversations are written out.
    pub(super) chat: Chat<'a>,
    /// What rows are.
    pub(super) shape: Shape,
    /// A column to read as text, whatever the shape.
    pub(super) field: Option<&'a str>,
    /// Whether one token is counted for the end of a sequence where the tokenizer adds none.
    pub(super) end: bool,
    /// Whether instructions and prompts are written out as conversations.
    pub(super) as_chat: bool,
}

/// How conversations are written out.
pub enum Chat<'a> {
    /// By a template.
    Template(&'a Template),
    /// Their contents alone, one after the other.
    Contents,
    /// Not at all: rows that need it were refused before.
    None,
}

impl Counting<'_> {
    /// The length of a row.
    ///
    /// # Errors
    /// What is wrong with the row.
    pub(super) fn measure(&self, row: &Json) -> Result<Example, Refused> {
        if !matches!(row, Json::Object(_)) {
            return Err((Kind::BadRow, format!("is {}, an object is needed", row.kind())));
        }
        if let Some(field) = self.field {
            return self.whole(text_at(row, field)?);
        }
        match self.shape {
            Shape::Tokenised => tokenised(row),
            Shape::Messages => self.chat(&messages_at(row, "messages")?, row.given("tools")),
            Shape::Conversations => self.chat(&messages_at(row, "conversations")?, row.given("tools")),
            Shape::Alpaca => self.alpaca(row),
            Shape::Preference => self.preference(row),
            Shape::Completion => self.completion(row),
            Shape::Evals => self.evals(row),
            Shape::Segments => self.segments(row),
            Shape::Text => {
                self.whole(text_at(row, TEXTS.iter().find(|name| row.get(name).is_some()).unwrap_or(&"text"))?)
            }
        }
    }

    fn count(&self, text: &str) -> Result<u32, Refused> {
        self.tokenizer.count(text).map_err(|why| (Kind::Miscounted, why))
    }

    /// Tokens that begin a sequence, and that end it.
    fn around(&self) -> (u32, u32) {
        let Tokenizer { begins, ends, .. } = self.tokenizer;
        (*begins, if self.end { (*ends).max(1) } else { *ends })
    }

    fn whole(&self, text: &str) -> Result<Example, Refused> {
        let (begin, end) = self.around();
        let total = self.count(text)?.saturating_add(begin + end);
        Ok(Example { total, answer: None })
    }

    /// A prompt and its answer, encoded apart.
    fn pair(&self, prompt: &str, answer: &str) -> Result<Example, Refused> {
        if answer.trim().is_empty() {
            return Err((Kind::NoAnswer, "has an empty answer: nothing of it would be trained".into()));
        }
        let (begin, end) = self.around();
        let start = self.count(prompt)?.saturating_add(begin);
        let total = start.saturating_add(self.count(answer)?).saturating_add(end);
        Ok(Example { total, answer: Some(Answer { start, end: total, supervised: total - start }) })
    }

    fn alpaca(&self, row: &Json) -> Result<Example, Refused> {
        let (instruction, output) = (text_at(row, "instruction")?, text_at(row, "output")?);
        let optional = |key| row.given(key).and_then(Json::text).filter(|text| !text.trim().is_empty());
        let (input, system) = (optional("input"), optional("system"));
        let history = history_of(row)?;
        if self.as_chat {
            let asked = input.map_or_else(|| instruction.to_owned(), |input| format!("{instruction}\n{input}"));
            let mut messages: Vec<Json> = system.map(|system| message("system", system)).into_iter().collect();
            for (question, answer) in history {
                messages.extend([message("user", question), message("assistant", answer)]);
            }
            messages.extend([message("user", &asked), message("assistant", output)]);
            return self.chat(&messages, None);
        }
        let mut prompt = system.map(|system| format!("{system}\n\n")).unwrap_or_default();
        for (question, answer) in history {
            prompt.push_str(&alpaca_prompt(question, None));
            prompt.push_str(answer);
            prompt.push('\n');
        }
        prompt.push_str(&alpaca_prompt(instruction, input));
        self.pair(&prompt, output)
    }

    fn completion(&self, row: &Json) -> Result<Example, Refused> {
        let absent = |what: &str, columns: &[&str]| (Kind::BadRow, format!("has no {what}: {}", columns.join(", ")));
        let prompt = first_of(row, &PROMPTS).ok_or_else(|| absent("prompt", &PROMPTS))?;
        let answer = first_of(row, &COMPLETIONS).ok_or_else(|| absent("answer", &COMPLETIONS))?;
        if let (Some(_), Some(_)) = (prompt.list(), answer.list()) {
            return self.chat(
                &[messages_of(prompt, "prompt")?, messages_of(answer, "completion")?].concat(),
                row.given("tools"),
            );
        }
        let (prompt, answer) = (text_of(prompt, "its prompt")?, text_of(answer, "its answer")?);
        if self.as_chat {
            return self.chat(&[message("user", prompt), message("assistant", answer)], None);
        }
        self.pair(prompt, answer)
    }

    /// The longer of the chosen and the rejected answer, each behind the prompt.
    fn preference(&self, row: &Json) -> Result<Example, Refused> {
        let one = |key: &str| -> Result<Example, Refused> {
            let answer = row.given(key).ok_or_else(|| (Kind::BadRow, format!("has no `{key}`")))?;
            match (row.given("prompt"), answer.list()) {
                (prompt, Some(_)) => {
                    let before = match prompt {
                        None => Vec::new(),
                        Some(Json::Text(text)) => vec![message("user", text)],
                        Some(list) => messages_of(list, "prompt")?,
                    };
                    self.chat(&[before, messages_of(answer, key)?].concat(), row.given("tools"))
                }
                (None, None) => self.whole(text_of(answer, key)?),
                (Some(prompt), None) => self.pair(text_of(prompt, "its prompt")?, text_of(answer, key)?),
            }
        };
        let (chosen, rejected) = (one("chosen")?, one("rejected")?);
        Ok(if rejected.total > chosen.total { rejected } else { chosen })
    }

    fn evals(&self, row: &Json) -> Result<Example, Refused> {
        let ideal = row.given("ideal").ok_or_else(|| (Kind::NoAnswer, "has no `ideal` answer".to_owned()))?;
        // Of several right answers the first is the one that people train on.
        let ideal = ideal.list().and_then(|list| list.first()).unwrap_or(ideal);
        let mut messages = messages_at(row, "input")?;
        messages.push(message("assistant", text_of(ideal, "its `ideal`")?));
        self.chat(&messages, None)
    }

    fn segments(&self, row: &Json) -> Result<Example, Refused> {
        let list = row.get("segments").and_then(Json::list).unwrap_or_default();
        let mut total = 0_u32;
        let mut answer: Option<Answer> = None;
        for segment in list {
            let count = self.count(text_at(segment, "text")?)?;
            if segment.get("label") == Some(&Json::Bool(true)) && count > 0 {
                let answer = answer.get_or_insert(Answer { start: total, end: total, supervised: 0 });
                (answer.end, answer.supervised) = (total + count, answer.supervised + count);
            }
            total = total.saturating_add(count);
        }
        let answer = answer.ok_or_else(|| (Kind::NoAnswer, "has no segment that is trained on".to_owned()))?;
        Ok(Example { total, answer: Some(answer) })
    }

    /// A conversation; its answer is the assistant's last turn.
    fn chat(&self, messages: &[Json], tools: Option<&Json>) -> Result<Example, Refused> {
        let last = last_answer(messages)?;
        let (total, start, end) = match self.chat {
            Chat::None => {
                return Err((Kind::BadRow, "is a conversation, and there is no template to write it out".into()));
            }
            Chat::Contents => {
                let contents = |messages: &[Json]| -> Result<u32, Refused> {
                    messages
                        .iter()
                        .try_fold(0_u32, |sum, message| Ok(sum.saturating_add(self.count(&content_of(message))?)))
                };
                (contents(messages)?, contents(&messages[..last])?, contents(&messages[..=last])?)
            }
            Chat::Template(template) => {
                let render = |messages: &[Json], prompt| {
                    let refused = |why| (Kind::TemplateRefused, format!("the chat template refuses it: {why}"));
                    template.render(messages, tools, prompt).map_err(refused)
                };
                let all = render(messages, false)?;
                let total = self.count(&all)?;
                // Templates that refuse a conversation without its end are told where it can be said: as a prefix.
                let start = match render(&messages[..last], true) {
                    Ok(prompt) => self.count(&prompt)?,
                    Err(refused) if last > 0 => return Err(refused),
                    Err(_) => 0,
                };
                let end = match messages.len() - 1 == last {
                    true => total,
                    false => self.count(&render(&messages[..=last], false)?)?,
                };
                (total, start, end)
            }
        };
        let start = start.min(end);
        if start == end {
            return Err((Kind::NoAnswer, "has an empty answer: nothing of it would be trained".into()));
        }
        Ok(Example { total, answer: Some(Answer { start, end, supervised: end - start }) })
    }
}

/// The index of the assistant's last turn that says something.
fn last_answer(messages: &[Json]) -> Result<usize, Refused> {
    if messages.is_empty() {
        return Err((Kind::NoAnswer, "has no messages".into()));
    }
    let is_answer = |message: &Json| message.get("role").and_then(Json::text) == Some("assistant");
    let Some(last) = messages.iter().rposition(is_answer) else {
        return Err((Kind::NoAnswer, "has no turn of the assistant: nothing of it would be trained".into()));
    };
    let message = &messages[last];
    let says = !content_of(message).trim().is_empty() || message.given("tool_calls").is_some();
    if says { Ok(last) } else { Err((Kind::NoAnswer, "has an empty answer: nothing of it would be trained".into())) }
}

/// The text of a message: its content, or the texts of its parts.
fn content_of(message: &Json) -> Cow<'_, str> {
    match message.get("content") {
        Some(Json::Text(text)) => Cow::Borrowed(text),
        Some(Json::List(parts)) => {
            let text = |part: &Json| part.text().or_else(|| part.get("text")?.text()).unwrap_or_default().to_owned();
            Cow::Owned(parts.iter().map(text).collect())
        }
        _ => Cow::Borrowed(""),
    }
}

fn message(role: &str, content: &str) -> Json {
    let member = |name: &str, text: &str| (name.to_owned(), Json::Text(text.to_owned()));
    Json::Object(vec![member("role", role), member("content", content)])
}

fn messages_at(row: &Json, key: &str) -> Result<Vec<Json>, Refused> {
    messages_of(row.get(key).ok_or_else(|| (Kind::BadRow, format!("has no `{key}`")))?, key)
}

/// Messages of roles and contents, those of `from` and `value` in other words.
fn messages_of(list: &Json, key: &str) -> Result<Vec<Json>, Refused> {
    let items =
        list.list().ok_or_else(|| (Kind::BadRow, format!("its `{key}` is {}, a list is needed", list.kind())))?;
    items
        .iter()
        .enumerate()
        .map(|(i, item)| one_message(item).map_err(|(kind, why)| (kind, format!("message {}: {why}", i + 1))))
        .collect()
}

fn one_message(item: &Json) -> Result<Json, Refused> {
    let bad = |why: String| (Kind::BadRow, why);
    let Json::Object(members) = item else { return Err(bad(format!("is {}, an object is needed", item.kind()))) };
    if let (None, Some(from)) = (item.get("role"), item.get("from")) {
        let from = text_of(from, "its `from`")?;
        let role = match from {
            "human" => "user",
            "gpt" | "model" | "chatgpt" | "bot" => "assistant",
            "function" | "observation" => "tool",
            other => other,
        };
        return Ok(message(role, text_at(item, "value")?));
    }
    let role = item.get("role").ok_or_else(|| bad("has no `role`".into()))?;
    text_of(role, "its `role`")?;
    match item.get("content") {
        Some(Json::Text(_) | Json::List(_)) => {}
        None | Some(Json::Null) if item.given("tool_calls").is_some() => {}
        None => return Err(bad("has no `content`".into())),
        Some(other) => return Err(bad(format!("its `content` is {}, a text is needed", other.kind()))),
    }
    Ok(Json::Object(members.clone()))
}

fn history_of(row: &Json) -> Result<Vec<(&str, &str)>, Refused> {
    let Some(history) = row.given("history") else { return Ok(Vec::new()) };
    let bad = || (Kind::BadRow, "its `history` is no list of pairs of texts".to_owned());
    let pair = |turn: &'_ Json| -> Option<()> { (turn.list()?.len() == 2).then_some(()) };
    let turns = history.list().ok_or_else(bad)?;
    turns
        .iter()
        .map(|turn| {
            pair(turn).ok_or_else(bad)?;
            let texts: Vec<&str> = turn.list().into_iter().flatten().filter_map(Json::text).collect();
            if let [question, answer] = texts[..] { Ok((question, answer)) } else { Err(bad()) }
        })
        .collect()
}

fn text_at<'a>(row: &'a Json, key: &str) -> Result<&'a str, Refused> {
    let value = row.get(key).ok_or_else(|| (Kind::BadRow, format!("has no `{key}`")))?;
    text_of(value, &format!("its `{key}`"))
}

fn text_of<'a>(value: &'a Json, what: &str) -> Result<&'a str, Refused> {
    value.text().ok_or_else(|| (Kind::BadRow, format!("{what} is {}, a text is needed", value.kind())))
}

/// The text that Stanford's Alpaca and Axolotl's `alpaca` put before an answer.
fn alpaca_prompt(instruction: &str, input: Option<&str>) -> String {
    match input {
        Some(input) => format!(
            "Below is an instruction that describes a task, paired with an input that provides further context. Write a \
             response that appropriately completes the request.\n\n### Instruction:\n{instruction}\n\n### \
             Input:\n{input}\n\n### Response:\n"
        ),
        None => format!(
            "Below is an instruction that describes a task. Write a response that appropriately completes the \
             request.\n\n### Instruction:\n{instruction}\n\n### Response:\n"
        ),
    }
}

fn tokenised(row: &Json) -> Result<Example, Refused> {
    let list = |key: &str| row.get(key).and_then(Json::list);
    let total = list("input_ids").unwrap_or_default().len();
    let total = u32::try_from(total).unwrap_or(u32::MAX);
    let Some(labels) = list("labels") else { return Ok(Example { total, answer: None }) };
    if labels.len() != total as usize {
        return Err((Kind::BadRow, format!("has {total} input_ids and {} labels", labels.len())));
    }
    let is_trained = |label: &Json| *label != Json::Int(IGNORED);
    let Some(first) = labels.iter().position(is_trained) else {
        return Err((Kind::NoAnswer, "all its labels are -100: nothing of it would be trained".into()));
    };
    let last = labels.iter().rposition(is_trained).unwrap_or(first);
    let supervised = labels.iter().filter(|label| is_trained(label)).count() as u32;
    Ok(Example { total, answer: Some(Answer { start: first as u32, end: last as u32 + 1, supervised }) })
}
