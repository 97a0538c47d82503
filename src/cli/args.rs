//! Flags exactly as typed, one struct a subcommand; [`super::recipe`] resolves them.

use clap::{Args, Parser, Subcommand, ValueEnum};
use prebake::lengths::Share;
use prebake::recipe::{Family, Filter, Target, Tile};
use prebake::report::tokens::Current;
use prebake::text::Shape;
use prebake::text::captions::WINDOWED;
use prebake::units::{Size, parse_bytes};
use prebake::vae::DeviceRequest;
use std::path::PathBuf;

/// Prepares an image dataset for training: names every problem, plans the buckets, bakes latent caches keyed by content.
#[derive(Debug, Parser)]
#[command(name = "prebake", version, max_term_width = 100, args_override_self = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// What is there: images, captions, sizes, and every problem, by file
    Scan(ScanArgs),
    /// Token lengths of captions or training rows, what is cut off, and the sequence length to train with
    Tokens(TokensArgs),
    /// What would be baked, and why
    Plan(PlanArgs),
    /// Build what is stale or missing; nothing else
    Bake(BakeArgs),
    /// Fresh, stale (with reasons), missing, damaged, orphan, foreign
    Status(StatusArgs),
    /// The pictures exactly as the encoder would get them, as PNG
    Pixels(PixelsArgs),
}

#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub(crate) struct ScanArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Decode every image, not only its structure
    #[arg(long)]
    pub(crate) deep: bool,
}

#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub(crate) struct TokensArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    /// More files of rows of the same kind
    #[arg(value_name = "FILE")]
    pub(crate) more: Vec<PathBuf>,
    /// Model family whose text encoders read the captions [default: sdxl]
    #[arg(long, value_parser = family)]
    pub(crate) family: Option<Family>,
    /// Whose captions: sd-scripts reads their first line only
    #[arg(long = "for", value_name = "TARGET", value_parser = target, default_value = "store")]
    pub(crate) target: Target,
    /// tokenizer.json, or a folder that holds it and the chat template, or hf:REPO in the local cache, or clip, t5
    #[arg(long, value_name = "FILE|DIR|hf:REPO|NAME")]
    pub(crate) tokenizer: Option<String>,
    /// The fastest engine, checked against the reference as it goes, or the reference alone
    #[arg(long, value_enum, default_value_t)]
    pub(crate) tokenizer_engine: EngineChoice,
    /// Content tokens that CLIP sees of a caption in sd-scripts: 75, 150 or 225 [default: 75]
    #[arg(long, value_name = "N", value_parser = max_token_length)]
    pub(crate) max_token_length: Option<u32>,
    /// Tokens that T5 sees of a caption, its end token included [default: 256 for sd3, else 512]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=65_536))]
    pub(crate) t5xxl_max_token_length: Option<u32>,
    /// How conversations are written out: a Jinja file, chatml, or none for their contents alone [default: the tokenizer's]
    #[arg(long, value_name = "FILE|chatml|none")]
    pub(crate) chat_template: Option<String>,
    /// What rows are: tokenised, messages, conversations, alpaca, preference, completion, evals, segments or text
    #[arg(long, value_name = "NAME", value_parser = shape)]
    pub(crate) format: Option<Shape>,
    /// A column to read as text
    #[arg(long, value_name = "NAME", conflicts_with = "format")]
    pub(crate) field: Option<String>,
    /// Write instructions and prompts out as conversations
    #[arg(long)]
    pub(crate) as_chat: bool,
    /// No end token where the tokenizer adds none
    #[arg(long)]
    pub(crate) no_eos: bool,
    /// Share of the examples that have to fit whole
    #[arg(long, value_name = "SHARE", value_parser = share, default_value = "0.95")]
    pub(crate) coverage: Share,
    /// The sequence length is a multiple of this
    #[arg(long, value_name = "N", value_parser = side(), default_value_t = 64)]
    pub(crate) multiple: u32,
    /// The model's longest sequence [default: from the files beside the tokenizer]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) longest: Option<u32>,
    /// Training batch
    #[arg(long, value_name = "N", value_parser = side(), default_value_t = 1)]
    pub(crate) batch: u32,
    /// What you train with now, as sequence length and batch: 4096x4
    #[arg(long, value_name = "LENxBATCH", value_parser = current)]
    pub(crate) current: Option<Current>,
    /// A histogram as .svg, or as .png without words
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(flatten)]
    pub(crate) recipe: RecipeArgs,
}

#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(flatten)]
    pub(crate) recipe: RecipeArgs,
    /// Exit with 1 unless everything is fresh
    #[arg(long)]
    pub(crate) check: bool,
}

#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub(crate) struct BakeArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(flatten)]
    pub(crate) recipe: RecipeArgs,
    /// Budget for decoded images in flight: 512MiB, 4GiB
    #[arg(long, value_name = "BYTES", value_parser = bytes, default_value = "1GiB")]
    pub(crate) ram: u64,
    /// Show the plan and stop
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub(crate) struct PixelsArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(flatten)]
    pub(crate) recipe: RecipeArgs,
    /// Folder for the PNG files
    #[arg(short = 'o', long = "output", value_name = "DIR")]
    pub(crate) output: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Common {
    /// A folder, or the dataset description that your trainer reads; for `tokens` also a file of rows
    pub(crate) dataset: PathBuf,
    /// One JSON document on stdout, text for people on stderr
    #[arg(long)]
    pub(crate) json: bool,
    /// Only errors and the result
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// More: every warning and reason, not only their counts
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Colours
    #[arg(long, value_enum, default_value_t)]
    pub(crate) color: ColorChoice,
    /// Progress on stderr: bars on a terminal, one JSON object a line, or none
    #[arg(long, value_enum, default_value_t)]
    pub(crate) progress: ProgressChoice,
    /// Settings by long flag names in TOML; prebake.toml in the folder DATASET, or beside a dataset TOML, is found by itself
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// CPU workers [default: all cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) threads: Option<u32>,
    /// Caption files looked for beside an image, in order
    #[arg(long, value_name = "EXT,…", value_delimiter = ',')]
    pub(crate) caption_ext: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct RecipeArgs {
    /// Whose layout and conventions; a comma list gives each
    #[arg(long = "for", value_name = "TARGET,…", value_delimiter = ',', value_parser = target, default_value = "store")]
    pub(crate) targets: Vec<Target>,
    /// Where artefacts go if not in the layout's own place
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Model family: sd15, sdxl, sd3, flux, chroma, … [default: found in the weights, else sdxl or flux]
    #[arg(long, value_parser = family)]
    pub(crate) family: Option<Family>,
    /// Nominal size, N or WxH; its area is the cap [default: the family's native size]
    #[arg(long, value_name = "N|WxH", value_parser = size)]
    pub(crate) resolution: Option<Size>,
    /// Hard cap on a bucket's area, in pixels or as WxH
    #[arg(long, value_name = "PX|WxH", value_parser = area)]
    pub(crate) max_area: Option<u64>,
    /// Bucket sides are multiples of this
    #[arg(long, value_name = "PX", value_parser = side())]
    pub(crate) bucket_step: Option<u32>,
    /// Smallest bucket side
    #[arg(long, value_name = "PX", value_parser = side())]
    pub(crate) min_bucket: Option<u32>,
    /// Largest bucket side
    #[arg(long, value_name = "PX", value_parser = side())]
    pub(crate) max_bucket: Option<u32>,
    /// One size for all: the resolution
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) no_bucket: Option<bool>,
    /// Images may be enlarged to fill a bucket
    #[arg(long, overrides_with = "no_upscale")]
    pub(crate) upscale: bool,
    /// Images are never enlarged
    #[arg(long, overrides_with = "upscale")]
    pub(crate) no_upscale: bool,
    /// Also bake the mirrored image
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) flip: Option<bool>,
    /// Keep alpha as a loss mask (trainers' layouts)
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) alpha_mask: Option<bool>,
    /// Resize filter: auto, area, lanczos, box, bilinear, bicubic or nearest
    #[arg(long, value_name = "FILTER", value_parser = filter)]
    pub(crate) resize: Option<Filter>,
    /// EXIF orientation [default for store: apply]
    #[arg(long, value_enum)]
    pub(crate) orientation: Option<Policy>,
    /// Colour under transparency, RRGGBB [default for store: FFFFFF]
    #[arg(long, value_name = "RRGGBB", value_parser = colour)]
    pub(crate) background: Option<Rgb>,
    /// Embedded colour profiles to sRGB [default for store: apply]
    #[arg(long, value_enum)]
    pub(crate) icc: Option<Policy>,
    /// Training batch, for under-filled buckets [default: 1]
    #[arg(long, value_name = "N", value_parser = side())]
    pub(crate) batch: Option<u32>,
    /// Gradient accumulation steps
    #[arg(long, value_name = "N", value_parser = side(), default_value_t = 1)]
    pub(crate) grad_accum: u32,
    /// Training GPUs
    #[arg(long, value_name = "N", value_parser = side(), default_value_t = 1)]
    pub(crate) gpus: u32,
    /// Weights: a VAE or a full checkpoint in safetensors
    #[arg(long, value_name = "FILE")]
    pub(crate) vae: Option<PathBuf>,
    /// Where the encoder runs: auto, cpu, cuda, cuda:N, cuda:N,M,… or metal (GPUs in builds that have them)
    #[arg(long, value_parser = device, default_value = "auto")]
    pub(crate) device: DeviceRequest,
    /// Least precision of the encoder's arithmetic
    #[arg(long, value_enum, default_value_t)]
    pub(crate) dtype: DtypeChoice,
    /// Dtype in the artefact [default: f32]
    #[arg(long, value_enum)]
    pub(crate) store_dtype: Option<StoreDtype>,
    /// Images per encoder call: auto (1 on the CPU, on a GPU what fits) or N
    #[arg(long, value_name = "auto|N", value_parser = cache_batch, default_value = "auto")]
    pub(crate) cache_batch: CacheBatch,
    /// Encode large pictures in overlapping tiles: auto (what would not fit in memory), off, or a side in pixels
    #[arg(long, value_name = "auto|off|PX", value_parser = tile, default_value = "auto")]
    pub(crate) tile: Tile,
    /// What is cached of the posterior
    #[arg(long, value_enum, default_value_t)]
    pub(crate) posterior: PosteriorChoice,
    /// Seed of `--posterior sample`
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
    /// Caches made by another tool
    #[arg(long, value_enum, default_value_t)]
    pub(crate) foreign: ForeignChoice,
}

macro_rules! choice {
    ($name:ident: $first:ident $(, $rest:ident)*) => {
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
        pub(crate) enum $name {
            #[default]
            $first,
            $($rest),*
        }
    };
}

choice!(ColorChoice: Auto, Always, Never);
choice!(ProgressChoice: Auto, Bars, Json, None);
choice!(Policy: Apply, Ignore);
choice!(DtypeChoice: Auto, F32, Bf16, F16);
choice!(StoreDtype: F32, Bf16, F16);
choice!(PosteriorChoice: Mean, Sample);
choice!(ForeignChoice: Keep, Rebuild);
choice!(EngineChoice: Auto, Reference);

/// A colour as three bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rgb(pub(crate) [u8; 3]);

/// Images per encoder call; `None` is `auto`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CacheBatch(pub(crate) Option<usize>);

fn side() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=1_000_000)
}

fn one_of<T: Copy>(text: &str, all: &[T], name: impl Fn(T) -> &'static str) -> Result<T, String> {
    let found = all.iter().copied().find(|&value| name(value) == text);
    let allowed: Vec<_> = all.iter().map(|&value| name(value)).collect();
    found.ok_or_else(|| format!("one of {} is needed", allowed.join(", ")))
}

fn target(text: &str) -> Result<Target, String> {
    one_of(text, &Target::ALL, Target::name)
}

fn family(text: &str) -> Result<Family, String> {
    one_of(text, &Family::ALL, Family::name)
}

fn shape(text: &str) -> Result<Shape, String> {
    one_of(text, &Shape::ALL, Shape::name)
}

fn share(text: &str) -> Result<Share, String> {
    let wrong = || "a share over 0 and up to 1 is needed: 0.95".to_owned();
    text.parse().ok().and_then(Share::of).ok_or_else(wrong)
}

fn max_token_length(text: &str) -> Result<u32, String> {
    let known = text.parse().ok().filter(|length| WINDOWED.contains(length));
    known.ok_or_else(|| "75, 150 or 225 is needed".to_owned())
}

fn current(text: &str) -> Result<Current, String> {
    let positive = |text: &str| text.trim().parse::<u32>().ok().filter(|&n| n > 0);
    let pair = text.split_once(['x', 'X']).and_then(|(length, batch)| positive(length).zip(positive(batch)));
    pair.map(|(sequence_len, batch)| Current { sequence_len, batch })
        .ok_or_else(|| "LENxBATCH is needed: 4096x4".to_owned())
}

fn device(text: &str) -> Result<DeviceRequest, String> {
    text.parse().map_err(|error: prebake::error::Error| error.to_string())
}

fn tile(text: &str) -> Result<Tile, String> {
    text.parse()
}

fn filter(text: &str) -> Result<Filter, String> {
    use Filter::{Area, Auto, Bicubic, Bilinear, Box, Lanczos, Nearest};
    one_of(text, &[Auto, Area, Lanczos, Box, Bilinear, Bicubic, Nearest], Filter::name)
}

fn size(text: &str) -> Result<Size, String> {
    let side = |text: &str| text.trim().parse::<u32>().ok().filter(|side| (1..=1_000_000).contains(side));
    let size = match text.split_once(['x', 'X', ',']) {
        Some((width, height)) => side(width).zip(side(height)).map(|(width, height)| Size::new(width, height)),
        None => side(text).map(|side| Size::new(side, side)),
    };
    size.ok_or_else(|| "N or WxH in pixels is needed: 1024, 832x1216".to_owned())
}

fn area(text: &str) -> Result<u64, String> {
    if text.contains(['x', 'X']) {
        return size(text).map(Size::area);
    }
    text.parse().ok().filter(|&area| area >= 1).ok_or_else(|| "pixels or WxH are needed: 1048576, 1024x1024".to_owned())
}

fn bytes(text: &str) -> Result<u64, String> {
    parse_bytes(text).filter(|&bytes| bytes > 0).ok_or_else(|| "a number of bytes is needed: 512MiB, 4GiB".to_owned())
}

fn colour(text: &str) -> Result<Rgb, String> {
    let digits = text.strip_prefix('#').unwrap_or(text);
    let byte = |at: usize| digits.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
    match (digits.len(), byte(0), byte(2), byte(4)) {
        (6, Some(r), Some(g), Some(b)) => Ok(Rgb([r, g, b])),
        _ => Err("RRGGBB is needed: FFFFFF".to_owned()),
    }
}

fn cache_batch(text: &str) -> Result<CacheBatch, String> {
    if text == "auto" {
        return Ok(CacheBatch(None));
    }
    let wrong = || "auto or a number from 1 to 1024 is needed".to_owned();
    text.parse().ok().filter(|n| (1..=1024).contains(n)).map(|n| CacheBatch(Some(n))).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_flags_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn sizes_and_areas_are_read_as_people_write_them() {
        assert_eq!(size("1024"), Ok(Size::new(1024, 1024)));
        assert_eq!(size("832x1216"), Ok(Size::new(832, 1216)));
        assert_eq!(area("768x768"), Ok(589_824));
        assert_eq!(area("589824"), Ok(589_824));
        assert!(size("0").is_err() && size("12x").is_err() && area("-1").is_err());
    }
}
