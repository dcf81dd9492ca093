//! Which files are read, and the text in them.
//!
//! Here belong folders, pipes and standard input; encodings belong to [`text`], and what the text means is not asked
//! here. The invariant: files of a folder are read in the order of their names, so that the output is always the
//! same.

mod reader;

use std::ffi::OsStr;
use std::fs;
use std::io::{self, IsTerminal as _, Read as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use super::text;
use super::text::{brief, is_json};
pub(super) use reader::Reader;

/// The byte order mark that some editors write before UTF-8.
const MARK: &[u8] = &[0xef, 0xbb, 0xbf];
/// How deep folders may be nested; links to folders are not followed.
const MAX_DEPTH: usize = 32;
/// Longest text that is no JSON: YAML takes several times as long to read.
const MAX_TEXT: usize = 1 << 30;
/// How much of a broken file is looked through for what it may hold.
const LOOKED_AT: u64 = 4 << 20;
/// How long a pipe may have no writer before a line says that the program waits for one.
const PATIENCE: Duration = Duration::from_secs(2);

/// One file, or standard input.
pub(super) struct Input {
    /// Its path as it was given, or found in the folder that was given; harmless to print.
    pub(super) name: String,
    /// A person named it, not only a folder that it is in.
    pub(super) named: bool,
    /// Which of the paths that were given it is, or is in.
    pub(super) given: usize,
    path: Option<PathBuf>,
}

impl Input {
    /// Its text: JSON as a stream, anything else as a whole.
    pub(super) fn source(&self) -> Result<InputText, String> {
        let mut reader = self.open()?;
        let start = reader.start().map_err(|error| plain(&error))?;
        let mark = start.starts_with(MARK);
        let utf16 = start.starts_with(&[0xff, 0xfe]) || start.starts_with(&[0xfe, 0xff]);
        if let Some(sort) = (!utf16).then(|| text::no_text(start)).flatten() {
            return Err(sort);
        }
        let start = start.strip_prefix(MARK).unwrap_or(start);
        let valid = start.utf8_chunks().next().map_or("", |chunk| chunk.valid());
        if is_json(valid) {
            if mark {
                reader.skip(MARK.len());
            }
            return Ok(InputText::Json(reader));
        }
        let whole = reader.whole(MAX_TEXT).map_err(|error| plain(&error))?;
        let whole = whole.ok_or("is over 1 GiB of YAML; write it as JSON (-o json)")?;
        text::decode(whole).map(InputText::Text)
    }

    fn open(&self) -> Result<Reader, String> {
        let Some(path) = &self.path else {
            if io::stdin().is_terminal() {
                eprintln!("reads from this terminal until Ctrl-D");
            }
            return Ok(Reader::new(Box::new(io::stdin())));
        };
        let file = match fs::metadata(path) {
            Ok(found) if is_pipe(&found) => open_pipe(path, &self.name),
            Ok(found) => {
                reader::fits(found.len())?;
                fs::File::open(path)
            }
            Err(error) => Err(error),
        };
        Ok(Reader::new(Box::new(file.map_err(|error| plain(&error))?)))
    }

    /// Whether a report misses nothing if this file cannot be read. So it is for two kinds of files of a folder: a
    /// collector's note of what it could not collect, and a file in which a person or a tool took something out and
    /// that holds no object of a report. A file that a person named is never left out.
    pub(super) fn is_left_out(&self) -> bool {
        if self.named {
            return false;
        }
        let stem = self.path.as_deref().and_then(Path::file_stem).and_then(OsStr::to_str).unwrap_or_default();
        if stem.ends_with("-errors") || stem == "errors" {
            return true;
        }
        let mut start = Vec::new();
        let read = self.open().map(|reader| reader.take(LOOKED_AT).read_to_end(&mut start));
        read.is_ok() && text::is_blackened(&start)
    }
}

#[cfg(unix)]
fn is_pipe(found: &fs::Metadata) -> bool {
    std::os::unix::fs::FileTypeExt::is_fifo(&found.file_type())
}

#[cfg(not(unix))]
fn is_pipe(_: &fs::Metadata) -> bool {
    false
}

/// Opening a named pipe waits until somebody opens it to write: says so when that takes long.
fn open_pipe(path: &Path, name: &str) -> io::Result<fs::File> {
    let (opened, waits) = mpsc::channel::<()>();
    let line = format!("{name} is a pipe into which nobody writes yet; waits for that (Ctrl-C ends it)");
    std::thread::spawn(move || {
        if waits.recv_timeout(PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout) {
            eprintln!("{line}");
        }
    });
    let file = fs::File::open(path);
    drop(opened);
    file
}

/// The text of an [`Input`].
pub(super) enum InputText {
    /// It begins as JSON does.
    Json(Reader),
    /// All of it.
    Text(String),
}

/// `-` and paths as they are shown.
pub(super) fn shown_path(path: &Path) -> String {
    match path.to_string_lossy() {
        text if text == "-" => "standard input".to_owned(),
        text => brief(text.strip_prefix("./").unwrap_or(&text)),
    }
}

/// The files that `paths` mean, and how many files of folders are of another sort.
pub(super) fn find(paths: &[PathBuf]) -> Result<(Vec<Input>, usize), String> {
    let mut found = Vec::new();
    let mut others = 0;
    for (given, path) in paths.iter().enumerate() {
        let name = shown_path(path);
        if path.as_os_str() == "-" {
            found.push(Input { name, named: true, given, path: None });
        } else if fs::metadata(path).map_err(|error| format!("{name}: {}", plain(&error)))?.is_dir() {
            let before = found.len();
            walk(path, (given, 0), &mut found, &mut others)
                .map_err(|error| format!("{name}: {}", plain(&error)))?;
            if found.len() == before {
                return Err(format!("{name}: no file in this folder ends in .json, .yaml or .yml"));
            }
        } else {
            found.push(Input { name, named: true, given, path: Some(path.clone()) });
        }
    }
    Ok((found, others))
}

/// Which of the given paths a folder is in, and how deep.
type Where = (usize, usize);

fn walk(folder: &Path, (given, depth): Where, found: &mut Vec<Input>, others: &mut usize) -> io::Result<()> {
    let mut entries = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        let is_text = || {
            let end = path.extension().map(OsStr::to_ascii_lowercase);
            end.is_some_and(|end| end == "json" || end == "yaml" || end == "yml")
        };
        if entry.file_type()?.is_dir() {
            if depth < MAX_DEPTH {
                walk(&path, (given, depth + 1), found, others)?;
            }
        } else if is_text() && path.is_file() {
            found.push(Input { name: shown_path(&path), named: false, given, path: Some(path) });
        } else {
            *others += 1;
        }
    }
    Ok(())
}

/// The words of an error of the system, without its number.
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_lowercase()
}
