//! `prebake tokens` through the binary: captions and their windows, training rows of every format, bad rows, what is remembered.

use crate::support::{Folder, Outcome, copy_tree, data, prebake};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

fn tokens(arguments: &[&str]) -> Outcome {
    prebake(&[&["tokens"][..], arguments, &["--json", "-q"]].concat())
}

/// A file of rows with the small byte-level vocabulary of the tests.
fn rows(folder: &Folder, name: &str, lines: &[Value], more: &[&str]) -> Value {
    let text: Vec<String> = lines.iter().map(Value::to_string).collect();
    folder.write(name, text.join("\n"));
    let (path, bpe) = (folder.join(name), data("tokens/bpe.json"));
    let arguments = [&[path.to_str().unwrap(), "--tokenizer", bpe.to_str().unwrap()], more].concat();
    tokens(&arguments).json()
}

/// Tokens that the small vocabulary gives, one for the end of the sequence not among them.
fn count(text: &str) -> u64 {
    let source = prebake::tokenizer::Source::Path(data("tokens/bpe.json"));
    prebake::tokenizer::Tokenizer::load(&source, true).unwrap().count(text).unwrap().into()
}

#[test]
fn s13_captions_of_76_tokens_are_over_the_window_and_told_with_the_words_they_lose() {
    let folder = Folder::new();
    copy_tree(&data("cases/s13-clip-75-76-77/data"), folder.path());
    let outcome = tokens(&[folder.path().to_str().unwrap(), "--family", "sdxl"]);
    let (code, report) = (outcome.code, outcome.json());
    assert_eq!(code, 0);
    let names: Vec<_> = report["encoders"].as_array().unwrap().iter().map(|e| e["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["clip-l", "clip-g"]);
    let clip = &report["encoders"][0];
    let expected: Value =
        serde_json::from_str(&fs::read_to_string(data("cases/s13-clip-75-76-77/expected.json")).unwrap()).unwrap();
    assert_eq!(clip["over_limit_paths"], expected["over_75_files"]);
    assert_eq!(
        (&clip["limit"], &clip["specials"], &clip["n"], &clip["over_limit"]),
        (&json!(75), &json!(2), &json!(11), &json!(5))
    );
    let all: u64 =
        expected["files"].as_object().unwrap().values().map(|file| file["content_tokens"].as_u64().unwrap()).sum();
    assert_eq!(clip["total"], all);
    assert_eq!(clip["cut"][0], json!({"path": "plain_076.png", "tokens": 76, "lost": "river"}));
    assert_eq!(report["recommend"], json!({"max_token_length": 150}));
    let longer = tokens(&[folder.path().to_str().unwrap(), "--family", "sdxl", "--max-token-length", "150"]).json();
    assert_eq!(longer["encoders"][0]["over_limit"], 0);
}

#[test]
fn s05_captions_that_are_no_utf8_are_named_and_the_others_counted() {
    let folder = Folder::copy_of("cases/s05-caption-encodings/data");
    let outcome = tokens(&[folder.path().to_str().unwrap(), "--family", "sd15"]);
    let report = outcome.json();
    let mut named: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for problem in report["problems"].as_array().unwrap() {
        named.entry(problem["kind"].as_str().unwrap()).or_default().push(problem["path"].as_str().unwrap());
    }
    assert_eq!(named["caption-empty"], ["bom_only.txt", "empty.txt", "whitespace.txt"]);
    assert_eq!(named["caption-missing"], ["missing.png"]);
    for undecodable in ["cp1252.txt", "latin1_only.txt", "shift_jis.txt", "utf16be_bom.txt", "utf16le_bom.txt"] {
        assert!(named["caption-encoding"].contains(&undecodable), "{undecodable}");
    }
    assert_eq!(report["encoders"][0]["n"], 9, "15 images, five captions that cannot be read and one that is not there");
}

#[test]
fn sd_scripts_reads_the_first_line_of_a_caption() {
    let folder = Folder::new();
    folder.picture("a.png", 64, 64, 1);
    folder.write("a.txt", "one two\nthree four five\n");
    let total = |target: &str| {
        tokens(&[folder.path().to_str().unwrap(), "--family", "sd15", "--for", target]).json()["encoders"][0]["total"]
            .clone()
    };
    assert_eq!((total("store"), total("sd-scripts")), (json!(5), json!(2)));
}

#[test]
fn s10_bad_rows_are_named_by_their_line_and_one_outlier_raises_nothing() {
    let folder = Folder::copy_of("cases/s10-jsonl-problems/data");
    let path = folder.join("train.jsonl");
    let outcome = tokens(&[path.to_str().unwrap(), "--tokenizer", "clip", "--chat-template", "none"]);
    let report = outcome.json();
    assert_eq!(outcome.code, 1);
    let named: Vec<_> =
        report["problems"].as_array().unwrap().iter().map(|p| (p["line"].clone(), p["kind"].clone())).collect();
    let expected =
        [(41, "malformed"), (42, "no-answer"), (43, "no-answer"), (44, "blank"), (45, "bad-row"), (46, "bad-row")];
    assert_eq!(named, expected.map(|(line, kind)| (json!(line), json!(kind))));
    let statistics = &report["encoders"][0];
    for (name, value) in
        [("n", 54), ("min", 8), ("p50", 85), ("p90", 107), ("p95", 111), ("p99", 12_001), ("max", 12_001)]
    {
        assert_eq!(statistics[name], value, "{name}");
    }
    let recommend = &report["recommend"];
    assert_eq!((&recommend["sequence_len"], recommend["over"].as_array().unwrap().len()), (&json!(128), 1));
    assert_eq!(recommend["over"][0]["line"], 47);
    let refused = tokens(&[path.to_str().unwrap(), "--tokenizer", "clip"]);
    assert_eq!(refused.code, 2);
    assert!(
        refused.stderr.contains("rows are conversations, and the tokenizer `clip` has no chat template"),
        "{}",
        refused.stderr
    );
}

#[test]
fn every_format_is_found_by_its_columns_and_counted_as_its_trainers_do() {
    let folder = Folder::new();
    let (ask, answer) = ("what is this?", "a cat");
    let (asked, answered) = (count(ask), count(answer));
    let format = |report: &Value| report["format"]["name"].as_str().unwrap().to_owned();
    let total = |report: &Value| report["encoders"][0]["total"].as_u64().unwrap();
    let supervised = |report: &Value| report["supervised"]["total"].as_u64().unwrap();

    let text = rows(&folder, "t.jsonl", &[json!({"text": ask})], &[]);
    assert_eq!((format(&text), total(&text)), ("text".into(), asked + 1));
    let bare = rows(&folder, "t.jsonl", &[json!({"text": ask})], &["--no-eos"]);
    assert_eq!(total(&bare), asked);
    let other = rows(&folder, "t.jsonl", &[json!({"body": ask})], &["--field", "body"]);
    assert_eq!(total(&other), asked + 1);

    let pair = rows(&folder, "p.jsonl", &[json!({"question": ask, "answer": answer})], &[]);
    assert_eq!(
        (format(&pair), total(&pair), supervised(&pair)),
        ("completion".into(), asked + answered + 1, answered + 1)
    );

    let chosen = json!({"prompt": ask, "chosen": answer, "rejected": "a dog, or perhaps a bear"});
    let preference = rows(&folder, "r.jsonl", &[chosen], &[]);
    assert_eq!(
        (format(&preference), total(&preference)),
        ("preference".into(), asked + count("a dog, or perhaps a bear") + 1)
    );

    let alpaca = rows(&folder, "a.jsonl", &[json!({"instruction": ask, "input": "", "output": answer})], &[]);
    let prompt = "Below is an instruction that describes a task. Write a response that appropriately completes the \
                  request.\n\n### Instruction:\nwhat is this?\n\n### Response:\n";
    assert_eq!((format(&alpaca), total(&alpaca)), ("alpaca".into(), count(prompt) + answered + 1));

    let labelled = json!({"input_ids": [1, 2, 3, 4], "labels": [-100, -100, 3, -100]});
    let tokenised = rows(&folder, "i.jsonl", &[labelled], &[]);
    assert_eq!((format(&tokenised), total(&tokenised), supervised(&tokenised)), ("tokenised".into(), 4, 1));
    assert_eq!(tokenised["prompt"]["max"], 2);

    let parts = json!({"segments": [{"label": false, "text": ask}, {"label": true, "text": answer}]});
    let segments = rows(&folder, "s.jsonl", &[parts], &[]);
    assert_eq!(
        (format(&segments), total(&segments), supervised(&segments)),
        ("segments".into(), asked + answered, answered)
    );

    let chatml = count(&format!("<|im_start|>user\n{ask}<|im_end|>\n<|im_start|>assistant\n{answer}<|im_end|>\n"));
    let before = count(&format!("<|im_start|>user\n{ask}<|im_end|>\n<|im_start|>assistant\n"));
    let turns = [json!({"role": "user", "content": ask}), json!({"role": "assistant", "content": answer})];
    let named = [json!({"from": "human", "value": ask}), json!({"from": "gpt", "value": answer})];
    let chats = [
        ("messages", json!({"messages": turns})),
        ("conversations", json!({"conversations": named})),
        ("evals", json!({"input": [turns[0]], "ideal": [answer, "a tiger"]})),
    ];
    for (name, row) in chats {
        let chat = rows(&folder, "c.jsonl", &[row], &["--chat-template", "chatml"]);
        assert_eq!((format(&chat), total(&chat), supervised(&chat)), (name.into(), chatml, chatml - before));
    }
    let as_chat = rows(
        &folder,
        "p.jsonl",
        &[json!({"prompt": ask, "completion": answer})],
        &["--as-chat", "--chat-template", "chatml"],
    );
    assert_eq!(total(&as_chat), chatml);

    let unknown = [json!({"a": 1, "b": 2})];
    folder.write("u.jsonl", unknown[0].to_string());
    let refused = tokens(&[folder.join("u.jsonl").to_str().unwrap(), "--tokenizer", "clip"]);
    assert!(refused.stderr.contains("has columns of no known format: it has a, b"), "{}", refused.stderr);
}

#[test]
fn a_grown_file_is_counted_where_it_grew_and_another_tokenizer_counts_all() {
    let folder = Folder::new();
    let many = |n: u32| -> Vec<Value> {
        (0..n)
            .map(|i| json!({"text": format!("{i} {}", "some words of a row ".repeat(40 + i as usize % 30))}))
            .collect()
    };
    let first = rows(&folder, "t.jsonl", &many(6000), &[]);
    assert_eq!((&first["counted"], &first["remembered"]), (&json!(6000), &json!(0)));
    let again = rows(&folder, "t.jsonl", &many(6000), &[]);
    assert_eq!(
        (&again["counted"], &again["encoders"], &again["recommend"]),
        (&json!(0), &first["encoders"], &first["recommend"])
    );
    let grown = rows(&folder, "t.jsonl", &many(6100), &[]);
    let counted = grown["counted"].as_u64().unwrap();
    assert!((100..3000).contains(&counted), "{counted}");
    let path = folder.join("t.jsonl");
    let other = tokens(&[path.to_str().unwrap(), "--tokenizer", "clip"]).json();
    assert_eq!(other["counted"], 6100);
}

#[test]
fn an_edited_caption_is_counted_again_and_its_latents_stay() {
    let folder = Folder::new();
    folder.picture("a.png", 64, 64, 1);
    folder.picture("b.png", 64, 64, 2);
    folder.write("a.txt", "a cat");
    folder.write("b.txt", "a dog");
    let vae = crate::support::tiny_vae();
    let bake = ["--vae", vae.to_str().unwrap(), "--resolution", "64", "--json", "-q"];
    assert_eq!(folder.run("bake", &bake).fine()["encoded"], 2);
    let counted =
        || tokens(&[folder.path().to_str().unwrap(), "--family", "sd15"]).json()["encoders"][0]["counted"].clone();
    assert_eq!((counted(), counted()), (json!(2), json!(0)));
    folder.write("b.txt", "a dog in the rain");
    assert_eq!(counted(), 1);
    assert_eq!(folder.run("bake", &bake).fine()["encoded"], 0);
}

#[test]
fn memory_is_told_against_what_is_trained_with_now() {
    let folder = Folder::new();
    let lines: Vec<Value> = (0..40).map(|i| json!({"text": "word ".repeat(500 + i)})).collect();
    let report = rows(&folder, "t.jsonl", &lines, &["--current", "4096x4", "--multiple", "1024"]);
    let recommend = &report["recommend"];
    let length = recommend["sequence_len"].as_u64().unwrap();
    assert_eq!(recommend["memory_times_less"], json!(4096.0 * 4.0 / length as f64));
    let at_1024 = recommend["candidates"].as_array().unwrap().iter().find(|row| row["len"] == 1024).unwrap();
    assert_eq!(at_1024["memory_times_less"], 16.0);
    let vocabulary = report["encoders"][0]["vocabulary"].as_u64().unwrap();
    assert_eq!(at_1024["logits_bytes"], 1024 * 4 * vocabulary);
    let axolotl = &recommend["snippets"]["axolotl"];
    assert_eq!(axolotl[0], format!("sequence_len: {length}"));
}

#[test]
fn a_histogram_is_drawn_where_it_is_asked_for() {
    let folder = Folder::new();
    let svg = folder.join("lengths.svg");
    rows(&folder, "t.jsonl", &[json!({"text": "a"}), json!({"text": "a b c"})], &["--plot", svg.to_str().unwrap()]);
    assert!(fs::read_to_string(&svg).unwrap().contains("recommended"));
    let png = folder.join("lengths.png");
    rows(&folder, "t.jsonl", &[json!({"text": "a"})], &["--plot", png.to_str().unwrap()]);
    assert_eq!(image::open(&png).unwrap().width(), 800);
    let path = folder.join("t.jsonl");
    let refused = tokens(&[path.to_str().unwrap(), "--tokenizer", "clip", "--plot", "lengths.gif"]);
    assert_eq!((refused.code, Path::new("lengths.gif").exists()), (2, false));
}

#[test]
fn tables_arrays_and_packed_files_count_like_lines() {
    let folder = Folder::new();
    let bpe = data("tokens/bpe.json");
    let of = |name: &str| {
        let report = tokens(&[folder.join(name).to_str().unwrap(), "--tokenizer", bpe.to_str().unwrap()]).json();
        (report["encoders"][0]["n"].clone(), report["encoders"][0]["total"].clone())
    };
    let texts = ["one, \"two\"", "three\nfour", "five"];
    let lines: Vec<String> = texts.iter().map(|text| json!({"text": text}).to_string()).collect();
    folder.write("t.jsonl", lines.join("\n"));
    let expected = of("t.jsonl");
    assert_eq!(expected.0, 3);
    folder.write("t.json", format!("{{\"data\": [{}]}}", lines.join(",\n")));
    folder.write("t.csv", "id,text\n1,\"one, \"\"two\"\"\"\n2,\"three\nfour\"\n3,five\n");
    folder.write("t.tsv", "text\n\"one, \"\"two\"\"\"\n\"three\nfour\"\nfive\n");
    folder.write("t.jsonl.zst", zstd::encode_all(lines.join("\n").as_bytes(), 3).unwrap());
    fs::copy(data("tokens/rows.parquet"), folder.join("t.parquet")).unwrap();
    for name in ["t.json", "t.csv", "t.tsv", "t.jsonl.zst", "t.parquet"] {
        assert_eq!(of(name), expected, "{name}");
    }
}
