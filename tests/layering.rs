//! Imports hold to the picture in docs/ARCHITECTURE.md: downwards, or to the siblings named here.

use std::fs;
use std::path::{Path, PathBuf};

/// Rooms by level, lowest first.
const LEVELS: [&[&str]; 6] = [
    &["error", "hash", "kernels", "pipeline", "problem", "progress", "units"],
    &["bucket", "containers", "lengths", "pixels", "recipe", "store", "tokenizer", "vae"],
    &["dataset", "text", "trainers"],
    &["plan"],
    &["bake"],
    &["report"],
];

/// Imports within a level.
const SIBLINGS: [(&str, &str); 9] = [
    ("recipe", "containers"),
    ("pixels", "recipe"),
    ("vae", "recipe"),
    ("tokenizer", "recipe"),
    ("store", "recipe"),
    ("store", "containers"),
    ("trainers", "dataset"),
    ("problem", "units"),
    ("pipeline", "progress"),
];

fn level(room: &str) -> Option<usize> {
    LEVELS.iter().position(|rooms| rooms.contains(&room))
}

fn rust_files(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, files);
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
}

/// The room of a file: `src/plan/decide.rs` and `src/plan.rs` are both `plan`.
fn room(file: &Path) -> String {
    let relative = file.strip_prefix(source()).unwrap();
    let first = relative.components().next().unwrap().as_os_str().to_string_lossy();
    first.trim_end_matches(".rs").to_owned()
}

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// Rooms named in `crate::room` paths of code, one-line comments and test modules left out.
fn imports(text: &str) -> Vec<String> {
    let code = text.split("#[cfg(test)]").next().unwrap();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    let mut rooms = Vec::new();
    for line in lines {
        for rest in line.split("crate::").skip(1) {
            let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            rooms.push(name);
        }
    }
    rooms
}

#[test]
fn imports_point_downwards() {
    let mut files = Vec::new();
    rust_files(&source(), &mut files);
    let mut checked = 0;
    for file in &files {
        let own = room(file);
        if ["lib", "main", "cli", "commands"].contains(&own.as_str()) {
            continue;
        }
        let own_level = level(&own).unwrap_or_else(|| panic!("`{own}` has no level in the picture"));
        for other in imports(&fs::read_to_string(file).unwrap()) {
            let Some(other_level) = level(&other) else { continue };
            let allowed = other == own
                || other_level < own_level
                || own_level == 0 && other_level == 0
                || SIBLINGS.contains(&(own.as_str(), other.as_str()));
            assert!(allowed, "{} imports `{other}`: not below `{own}`", file.display());
            checked += 1;
        }
    }
    assert!(checked > 100, "only {checked} imports were found");
}

#[test]
fn the_library_does_not_know_the_terminal() {
    let mut files = Vec::new();
    rust_files(&source(), &mut files);
    for file in files.iter().filter(|file| !["main", "cli", "commands"].contains(&room(file).as_str())) {
        let text = fs::read_to_string(file).unwrap();
        for word in ["clap::", "indicatif::", "ctrlc::", "std::env::", "process::exit"] {
            assert!(!text.contains(word), "{} uses `{word}`", file.display());
        }
    }
}
