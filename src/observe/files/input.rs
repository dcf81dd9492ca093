//! Which files are read, and the text in them.
//!
//! Here belong folders, standard input and encodings; what the text means does not. The invariant: files are read in
//! the order of their names, so that what is said about them is always the same.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use super::objects::{harmless, is_json};

/// How much of a file is held while it is read.
const BUFFER: usize = 64 << 10;
/// What some editors write before UTF-8.
const MARK: &[u8] = &[0xef, 0xbb, 0xbf];
/// How deep folders may be nested; links to folders are not followed.
const MAX_DEPTH: usize = 32;

/// One file, or standard input.
pub(super) struct Input {
    /// Its path as it was given, or found in the folder that was given; harmless to print.
    pub(super) name: String,
    /// A person named it, not only a folder that it is in.
    pub(super) named: bool,
    path: Option<PathBuf>,
}

impl Input {
    /// All of its text.
    pub(super) fn text(&self) -> Result<String, String> {
        whole(self.open()?)
    }

    /// Its text, as it comes in where that is JSON.
    pub(super) fn source(&self) -> Result<Source, String> {
        let mut reader = self.open()?;
        let start = reader.fill_buf().map_err(|error| plain(&error))?;
        let mark = start.starts_with(MARK);
        let start = start.strip_prefix(MARK).unwrap_or(start);
        let valid = start.utf8_chunks().next().map_or("", |chunk| chunk.valid());
        if !is_json(valid) {
            return whole(reader).map(Source::Text);
        }
        if mark {
            reader.consume(MARK.len());
        }
        Ok(Source::Json(reader))
    }

    fn open(&self) -> Result<Box<dyn BufRead>, String> {
        Ok(match &self.path {
            None => Box::new(io::stdin().lock()),
            Some(path) => {
                let file = fs::File::open(path).map_err(|error| plain(&error))?;
                Box::new(BufReader::with_capacity(BUFFER, file))
            }
        })
    }
}

fn whole(mut reader: Box<dyn BufRead>) -> Result<String, String> {
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes).map_err(|error| plain(&error))?;
    decode(bytes)
}

/// The text of an [`Input`].
pub(super) enum Source {
    /// It begins as JSON does.
    Json(Box<dyn BufRead>),
    /// All of it.
    Text(String),
}

/// `-` and paths as they are shown.
pub(super) fn shown(path: &Path) -> String {
    match path.to_string_lossy() {
        text if text == "-" => "standard input".to_owned(),
        text => harmless(text.strip_prefix("./").unwrap_or(&text)),
    }
}

/// The files that `paths` mean, and how many files of folders are of another sort.
pub(super) fn find(paths: &[PathBuf]) -> Result<(Vec<Input>, usize), String> {
    let mut found = Vec::new();
    let mut others = 0;
    for path in paths {
        let name = shown(path);
        if path.as_os_str() == "-" {
            found.push(Input { name, named: true, path: None });
        } else if fs::metadata(path).map_err(|error| format!("{name}: {}", plain(&error)))?.is_dir() {
            let before = found.len();
            walk(path, 0, &mut found, &mut others).map_err(|error| format!("{name}: {}", plain(&error)))?;
            if found.len() == before {
                return Err(format!("{name}: no file in this folder ends in .json, .yaml or .yml"));
            }
        } else {
            found.push(Input { name, named: true, path: Some(path.clone()) });
        }
    }
    Ok((found, others))
}

fn walk(folder: &Path, depth: usize, found: &mut Vec<Input>, others: &mut usize) -> io::Result<()> {
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
                walk(&path, depth + 1, found, others)?;
            }
        } else if is_text() && path.is_file() {
            found.push(Input { name: shown(&path), named: false, path: Some(path) });
        } else {
            *others += 1;
        }
    }
    Ok(())
}

/// The text of `bytes`: UTF-8, or the UTF-16 that `>` writes in Windows PowerShell.
fn decode(bytes: Vec<u8>) -> Result<String, String> {
    let utf16 = |bytes: &[u8], unit: fn([u8; 2]) -> u16| {
        let units: Vec<u16> = bytes.chunks_exact(2).map(|pair| unit([pair[0], pair[1]])).collect();
        String::from_utf16(&units).map_err(|_| "is not text: broken UTF-16".to_owned())
    };
    match bytes.as_slice() {
        [] => Err("is empty".to_owned()),
        [0xff, 0xfe, rest @ ..] => utf16(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => utf16(rest, u16::from_be_bytes),
        [0x1f, 0x8b, ..] => Err("is compressed; unpack it first".to_owned()),
        [0xef, 0xbb, 0xbf, rest @ ..] => text(Cow::Borrowed(rest)),
        _ => text(Cow::Owned(bytes)),
    }
}

fn text(bytes: Cow<'_, [u8]>) -> Result<String, String> {
    let not_text = "is neither JSON nor YAML: it is not text".to_owned();
    if bytes.contains(&0) {
        return Err(not_text);
    }
    let text = String::from_utf8(bytes.into_owned()).map_err(|_| not_text)?;
    // A proxy's login page, most often.
    if text.trim_start().starts_with('<') {
        return Err("is HTML or XML, not what kubectl writes".to_owned());
    }
    Ok(text)
}

/// The words of an error of the system, without its number.
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_lowercase()
}
