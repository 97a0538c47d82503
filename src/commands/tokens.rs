//! `prebake tokens`

use super::context::{interruptible, look, report_trouble, start_threads};
use crate::cli::args::{EngineChoice, TokensArgs};
use crate::cli::ui::{Ui, exit};
use chrono::Local;
use prebake::dataset::captions::{read_words, words};
use prebake::error::{Error, IoContext, Result};
use prebake::lengths::{Candidate, Limits, Share, ladder, recommend};
use prebake::plan::Collected;
use prebake::problem::{Kind, Problem};
use prebake::recipe::{Family, Target};
use prebake::report::tokens::plot::{self, Mark};
use prebake::report::tokens::{CaptionReport, TextReport};
use prebake::store::Index;
use prebake::text::captions::{self, Caption};
use prebake::text::{self, CHATML, ChatSource, Request, Template};
use prebake::tokenizer::encoders::{self, TextEncoder};
use prebake::tokenizer::{BuiltIn, Source, Tokenizer};
use prebake::trainers::description;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

pub(crate) fn run(args: &TokensArgs, ui: &Ui) -> Result<u8> {
    if is_rows(args) { of_rows(args, ui) } else { of_captions(args, ui) }
}

/// True for files of training rows, false for a folder or a description of images with captions.
fn is_rows(args: &TokensArgs) -> bool {
    let dataset = &args.common.dataset;
    if dataset.is_dir() || text::container(dataset).is_none() {
        return false;
    }
    let is_said = args.format.is_some() || args.field.is_some() || !args.more.is_empty();
    // A description of images that no trainer can read is left to say so itself.
    is_said || text::looks_like_rows(dataset) || description::describe(dataset, Path::new(".")).is_err()
}

fn of_rows(args: &TokensArgs, ui: &Ui) -> Result<u8> {
    start_threads(&args.common);
    let named = args.tokenizer.as_deref().ok_or_else(|| {
        let hint = "--tokenizer DIR of your model, a tokenizer.json, or hf:REPO from the local cache";
        Error::usage("--tokenizer is needed: tokens are counted with the model's own", hint)
    })?;
    let tokenizer = load(named, args)?;
    let template = template(args, &tokenizer)?;
    let chat = match (&template, args.chat_template.as_deref()) {
        (Some(template), _) => Some(ChatSource::Template(template)),
        (None, Some("none")) => Some(ChatSource::Contents),
        (None, _) => None,
    };
    let files: Vec<PathBuf> = std::iter::once(&args.common.dataset).chain(&args.more).cloned().collect();
    let folder = files[0].parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let (index, warning) = Index::open(folder);
    if let Some(warning) = warning {
        ui.remark(&format!("warning: {warning}"));
    }
    let request = Request {
        files: &files,
        tokenizer: &tokenizer,
        chat,
        shape: args.format,
        field: args.field.as_deref(),
        end: !args.no_eos,
        as_chat: args.as_chat,
        index: &index,
    };
    let counted = text::count(&request, ui.progress(), &interruptible());
    report_trouble(&index, ui);
    let counted = counted?;
    let longest = args.longest.or(tokenizer.config.longest);
    let limits = Limits { coverage: args.coverage, multiple: args.multiple, longest };
    let recommendation = recommend(&counted.lengths, &limits);
    let more: Vec<u32> =
        recommendation.iter().map(|r| r.sequence_len).chain(args.current.map(|current| current.sequence_len)).collect();
    let candidates: Vec<Candidate> = ladder(&counted.lengths, args.multiple, longest, &more)
        .into_iter()
        .map(|len| Candidate::measure(&counted.lengths, len, args.batch))
        .collect();
    let report = TextReport {
        counted: &counted,
        tokenizer: &tokenizer,
        longest,
        candidates: &candidates,
        recommendation: recommendation.as_ref(),
        batch: args.batch,
        current: args.current,
    };
    if let Some(file) = &args.plot {
        let mut marks = marks(&counted.lengths.total);
        marks.extend(recommendation.as_ref().map(|r| Mark { length: r.sequence_len, label: "recommended".into() }));
        draw(file, &format!("tokens of an example, {}", tokenizer.name), &counted.lengths.total, &marks)?;
    }
    ui.problems(&counted.problems);
    ui.result(&report.text());
    ui.document(&report.json());
    Ok(if counted.problems.is_empty() { exit::FINE } else { exit::FINDINGS })
}

fn of_captions(args: &TokensArgs, ui: &Ui) -> Result<u8> {
    if let Some(file) = args.more.first() {
        let hint = "one folder or description of images, or files of training rows";
        return Err(Error::usage(format!("`{}`: images come from one dataset at a time", file.display()), hint));
    }
    let looked = look(&args.common, false, ui)?;
    let family = args.family.unwrap_or_else(|| {
        ui.remark("captions are counted for sdxl (--family says otherwise)");
        Family::Sdxl
    });
    let (captions, more) = captions_of(&looked.collected, args.target);
    let mut problems = looked.collected.problems.clone();
    problems.extend(more);
    let mut tokenizers: HashMap<String, Tokenizer> = HashMap::new();
    let (mut encoded, mut uncounted) = (Vec::new(), Vec::new());
    for encoder in encoders::of(family) {
        let encoder = limited(encoder, args);
        let Some(named) = encoder.tokenizer.map(|own| own.name().to_owned()).or_else(|| args.tokenizer.clone()) else {
            uncounted.push(encoder.name);
            continue;
        };
        if !tokenizers.contains_key(&named) {
            tokenizers.insert(named.clone(), load(&named, args)?);
        }
        let tokenizer = &tokenizers[&named];
        encoded.push(captions::count(&captions, encoder, tokenizer, &looked.index, ui.progress(), &looked.cancel)?);
    }
    report_trouble(&looked.index, ui);
    if encoded.is_empty() {
        let message = format!(
            "the text encoders of {} have no tokenizer that is built in: {}",
            family.name(),
            uncounted.join(", ")
        );
        return Err(Error::usage(message, "--tokenizer DIR, with the tokenizer.json of the model's text encoder"));
    }
    if let (Some(file), Some(first)) = (&args.plot, encoded.first()) {
        let mut marks = marks(&first.lengths);
        marks.push(Mark { length: first.encoder.limit, label: "limit".into() });
        draw(file, &format!("tokens of a caption, {}", first.encoder.name), &first.lengths, &marks)?;
    }
    let report = CaptionReport { encoded: &encoded, uncounted: &uncounted, problems: &problems };
    ui.problems(&problems);
    ui.result(&report.text());
    ui.document(&report.json());
    Ok(if problems.iter().any(Problem::is_error) { exit::FINDINGS } else { exit::FINE })
}

/// The encoder with the limit that the flags say.
fn limited(encoder: TextEncoder, args: &TokensArgs) -> TextEncoder {
    let asked = match encoder.tokenizer {
        Some(BuiltIn::Clip) if encoder.windows => args.max_token_length,
        Some(BuiltIn::T5) => args.t5xxl_max_token_length.map(|length| length - encoder.specials),
        _ => None,
    };
    TextEncoder { limit: asked.unwrap_or(encoder.limit), ..encoder }
}

/// The captions as the trainer reads them, once an image; with notes on those that it does not read whole.
fn captions_of(collected: &Collected, target: Target) -> (Vec<Caption>, Vec<Problem>) {
    let (mut captions, mut problems, mut seen) = (Vec::new(), Vec::new(), std::collections::HashSet::new());
    for image in collected.images.iter().filter(|image| image.usable) {
        if !seen.insert(&image.path) {
            continue;
        }
        let file = || image.caption.as_deref().and_then(|path| read_words(&collected.description.root, path));
        let Some(text) = image.inline.as_deref().map(words).or_else(file) else { continue };
        let lines = text.lines().count();
        let text = match (target, text.lines().next()) {
            (Target::SdScripts, Some(first)) if lines > 1 => {
                let message = format!("its caption has {lines} lines, of which sd-scripts reads the first");
                problems.push(Problem::warning(image.path.clone(), Kind::CaptionEncoding, message));
                first.trim().to_owned()
            }
            _ => text,
        };
        captions.push(Caption { path: image.path.clone(), text });
    }
    (captions, problems)
}

fn load(named: &str, args: &TokensArgs) -> Result<Tokenizer> {
    let source = match (BuiltIn::named(named), named.strip_prefix("hf:")) {
        (Some(built_in), _) => Source::BuiltIn(built_in),
        (None, Some(repo)) => Source::Path(cached_repo(repo)?),
        (None, None) => Source::Path(PathBuf::from(named)),
    };
    Tokenizer::load(&source, args.tokenizer_engine == EngineChoice::Reference)
}

/// The newest snapshot of a repository in the local cache of `huggingface_hub`.
fn cached_repo(repo: &str) -> Result<PathBuf> {
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache/huggingface"));
    let hub = std::env::var_os("HF_HUB_CACHE")
        .map(PathBuf::from)
        .or_else(|| Some(std::env::var_os("HF_HOME").map(PathBuf::from).or_else(home)?.join("hub")));
    let snapshots = hub.unwrap_or_default().join(format!("models--{}", repo.replace('/', "--"))).join("snapshots");
    let newest = fs::read_dir(&snapshots).ok().and_then(|entries| {
        let folders = entries.flatten().map(|entry| entry.path()).filter(|path| path.join("tokenizer.json").is_file());
        folders.max_by_key(|path| path.metadata().and_then(|metadata| metadata.modified()).ok())
    });
    newest.ok_or_else(|| {
        Error::input(&snapshots, "holds no snapshot with a tokenizer.json")
            .with_hint(format!("hf download {repo} --include 'tokenizer*' '*.jinja' config.json"))
    })
}

fn template(args: &TokensArgs, tokenizer: &Tokenizer) -> Result<Option<Template>> {
    let (place, source) = match args.chat_template.as_deref() {
        Some("none") => return Ok(None),
        Some("chatml") => ("chatml".to_owned(), CHATML.to_owned()),
        Some(file) => (file.to_owned(), fs::read_to_string(file).at(file)?),
        None => match &tokenizer.config.chat_template {
            Some(source) => (tokenizer.name.clone(), source.clone()),
            None => return Ok(None),
        },
    };
    let mut tokens = tokenizer.config.named_tokens.clone();
    let named = [("bos_token", &tokenizer.config.bos_token), ("eos_token", &tokenizer.config.eos_token)];
    for (name, token) in named {
        if let (Some(token), false) = (token, tokens.iter().any(|(known, _)| known == name)) {
            tokens.push((name.to_owned(), token.clone()));
        }
    }
    let template = Template::new(&source, &tokens, Local::now().naive_local());
    template.map(Some).map_err(|why| Error::input(place, format!("its chat template cannot be compiled: {why}")))
}

fn marks(lengths: &prebake::lengths::Histogram) -> Vec<Mark> {
    let shares = [("p50", Share::permille(500)), ("p95", Share::permille(950)), ("p99", Share::permille(990))];
    let mark =
        |(label, share): (&str, Share)| Some(Mark { length: lengths.percentile(share)?, label: label.to_owned() });
    shares.into_iter().filter_map(mark).collect()
}

fn draw(file: &Path, title: &str, lengths: &prebake::lengths::Histogram, marks: &[Mark]) -> Result<()> {
    match file.extension().and_then(|extension| extension.to_str()) {
        Some("svg") => fs::write(file, plot::svg(title, lengths, marks)).at(file),
        Some("png") => {
            let broken = |error: image::ImageError| Error::input(file, format!("cannot be written: {error}"));
            plot::pixels(lengths, marks).save(file).map_err(broken)
        }
        _ => Err(Error::usage(format!("--plot {}: .svg or .png is needed", file.display()), "--plot lengths.svg")),
    }
}
