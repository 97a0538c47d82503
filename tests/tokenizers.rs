//! Tokenizers: the ids of transformers, and fast engines that count what the reference counts.

use crate::support::{Folder, data, json_file, numbers};
use prebake::tokenizer::{BuiltIn, Source, Tokenizer};
use proptest::prelude::*;
use std::sync::LazyLock;

fn clip() -> Tokenizer {
    Tokenizer::load(&Source::BuiltIn(BuiltIn::Clip), false).unwrap()
}

#[test]
fn clips_ids_equal_those_of_transformers_on_odd_captions() {
    let clip = clip();
    assert_eq!((clip.vocabulary, clip.specials, clip.engine()), (49_408, 2, "tokenizers by pieces"));
    let golden = json_file(&data("tokens/clip.json"));
    let rows = golden["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 140);
    for row in rows {
        let caption = row[0].as_str().unwrap();
        let ids = numbers(&row[1]);
        assert_eq!(clip.ids(caption, true).unwrap(), ids, "{caption:?}");
        assert_eq!(clip.count(caption).unwrap() + clip.specials, ids.len() as u32, "{caption:?}");
    }
}

/// sd-scripts' ids for captions of 0 to over 225 tokens, in windows of 77: as many content tokens as fit its length.
#[test]
fn sd_scripts_windows_hold_the_content_tokens_that_fit() {
    let clip = clip();
    let golden = json_file(&data("tokens/sd-scripts.json"));
    let captions: Vec<&str> = golden["captions"].as_array().unwrap().iter().map(|c| c.as_str().unwrap()).collect();
    let mut compared = 0;
    for set in golden["sets"].as_array().unwrap() {
        let limit = set["max_token_length"].as_u64().unwrap_or(75) as usize;
        // Sets whose ids are those of another one say so instead.
        for encoder in set["ids"].as_array().into_iter().flatten() {
            for (caption, windows) in captions.iter().zip(encoder.as_array().unwrap()) {
                let mut expected = clip.ids(caption, false).unwrap();
                assert_eq!(clip.count(caption).unwrap() as usize, expected.len());
                expected.truncate(limit);
                let windows = windows.as_array().unwrap().iter().map(numbers);
                let content = |window: Vec<u32>| window.into_iter().skip(1).take(75).collect::<Vec<_>>();
                let all: Vec<u32> = windows.flat_map(content).collect();
                assert_eq!(all[..expected.len()], expected, "{caption:?} at {limit}");
                assert!(all[expected.len()..].iter().all(|id| [0, 49_407].contains(id)), "{caption:?} at {limit}");
                compared += 1;
            }
        }
    }
    assert_eq!(compared, 84);
}

#[test]
fn a_byte_level_vocabulary_is_counted_by_the_fast_engine_as_python_counts() {
    let path = data("tokens/bpe.json");
    let (fast, plain) =
        (Tokenizer::load(&Source::Path(path.clone()), false), Tokenizer::load(&Source::Path(path), true));
    let (fast, plain) = (fast.unwrap(), plain.unwrap());
    assert_eq!((fast.engine(), plain.engine()), ("tokenizers 1.0.0-rc.3", "tokenizers"));
    assert_eq!(fast.hash, plain.hash);
    let rows = json_file(&data("tokens/counts.json"));
    for row in rows["bpe"].as_array().unwrap() {
        let (text, count) = (row[0].as_str().unwrap(), row[1].as_u64().unwrap() as u32);
        assert_eq!((fast.count(text), plain.count(text)), (Ok(count), Ok(count)), "{text:?}");
    }
}

#[test]
fn t5s_counts_by_pieces_equal_those_of_whole_texts() {
    let t5 = Tokenizer::load(&Source::BuiltIn(BuiltIn::T5), false).unwrap();
    assert_eq!((t5.vocabulary, t5.specials, t5.engine()), (32_100, 1, "tokenizers 1.0.0-rc.3 by pieces"));
    assert_eq!(t5.ids("a photo of a cat", true).unwrap(), [3, 9, 1202, 13, 3, 9, 1712, 1]);
    let rows = json_file(&data("tokens/counts.json"));
    for row in rows["bpe"].as_array().unwrap() {
        let text = row[0].as_str().unwrap();
        assert_eq!(t5.count(text).unwrap() as usize, t5.ids(text, false).unwrap().len(), "{text:?}");
    }
}

#[test]
fn what_lies_beyond_a_limit_is_told_by_its_place_in_the_text() {
    let clip = clip();
    let text = "Ein Café, a red balloon";
    assert_eq!(clip.beyond(text, 75), Ok(None));
    let cut = clip.beyond(text, 5).unwrap().unwrap();
    assert_eq!(&text[cut], "balloon");
}

#[test]
fn files_that_are_no_tokenizer_are_refused_by_name() {
    let folder = Folder::new();
    let error = |path: &str| {
        Tokenizer::load(&Source::Path(folder.join(path)), false).err().map(|error| error.to_string()).unwrap()
    };
    assert!(error("").ends_with("holds no tokenizer.json"));
    folder.write("tokenizer.json", "{\"model\": {}}");
    assert!(error("").contains("is no tokenizer.json that can be read: "));
    assert!(error("gone.json").contains("gone.json"));
}

static BY_PIECES: LazyLock<[Tokenizer; 2]> = LazyLock::new(|| {
    [BuiltIn::Clip, BuiltIn::T5].map(|which| Tokenizer::load(&Source::BuiltIn(which), false).unwrap())
});

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn any_text_counts_the_same_by_pieces(text in r"([a-zA-Z0-9 ,.'_<>|/]|'(s|RE|ll|x)|[\x00-\x20]|\PC|\p{M}|\s){0,40}") {
        for tokenizer in BY_PIECES.iter() {
            let whole = tokenizer.ids(&text, false).unwrap().len() as u32;
            prop_assert_eq!(tokenizer.count(&text), Ok(whole), "{}", tokenizer.name);
        }
    }
}
