//! The bytes of a file as they come in: bounded, and without the logs that `kubectl cluster-info dump` writes between
//! its documents.
//!
//! Here belongs what can be told from bytes alone. The invariant: while a file is read as a stream no more than one
//! buffer of it is held, and no file is read without end.

use std::io::{self, Read};

/// How much of a file is held while it is read.
const BUFFER: usize = 64 << 10;
/// Largest file, in bytes: a dump of 5,000 nodes with 150,000 pods is less than half as large.
const MAX_BYTES: u64 = 2 << 30;
/// Longest text in JSON: a cluster stores no object that is larger than a few MiB.
const MAX_TEXT: usize = 16 << 20;
/// How many bytes are read, unless the file ends before, to tell what sort of file it is.
const START: usize = 1024;

const LOG_BEGINS: &[u8] = b"==== START logs for container ";
const LOG_ENDS: &[u8] = b"==== END logs for container ";
/// Longest line that may be the head of a log.
const MAX_HEAD: usize = 2048;

/// Where in a dump the reader is.
enum DumpPlace {
    /// In a document, or between two.
    Document,
    /// At the start of a line that may begin a log; these bytes of it were read.
    Line(Vec<u8>),
    /// In a log, until these bytes come; the last bytes that were read.
    Log { end: Vec<u8>, last: Vec<u8> },
    /// After a log, until its line ends.
    AfterLog,
}

/// The bytes of a file, and nothing of the logs in it.
pub(in super::super) struct Reader {
    inner: Box<dyn Read>,
    raw: Vec<u8>,
    buffer: Vec<u8>,
    at: usize,
    read: u64,
    /// What is left of the most that may be read.
    most: u64,
    /// Bytes since the last quote that ends or begins a text.
    since_quote: usize,
    place: DumpPlace,
    ended: bool,
}

impl Reader {
    pub(super) fn new(inner: Box<dyn Read>) -> Self {
        Self::bounded(inner, MAX_BYTES)
    }

    fn bounded(inner: Box<dyn Read>, most: u64) -> Self {
        Self {
            inner,
            raw: vec![0; BUFFER],
            buffer: Vec::new(),
            at: 0,
            read: 0,
            most,
            since_quote: 0,
            place: DumpPlace::Line(Vec::new()),
            ended: false,
        }
    }

    /// The first bytes: all of a short file, and enough of a longer one to tell its sort.
    pub(super) fn start(&mut self) -> io::Result<&[u8]> {
        while self.buffer.len() < START && !self.ended {
            self.fill()?;
        }
        Ok(&self.buffer)
    }

    /// Passes over the first `count` bytes.
    pub(super) fn skip(&mut self, count: usize) {
        self.at = self.buffer.len().min(self.at + count);
    }

    /// All that is left, if it is not longer than `most`.
    pub(super) fn whole(&mut self, most: usize) -> io::Result<Option<Vec<u8>>> {
        let mut bytes = self.buffer.split_off(self.at);
        while !self.ended {
            self.buffer.clear();
            self.at = 0;
            self.fill()?;
            bytes.append(&mut self.buffer);
            if bytes.len() > most {
                return Ok(None);
            }
        }
        Ok(Some(bytes))
    }

    /// Reads once more, and adds what is kept of it.
    fn fill(&mut self) -> io::Result<()> {
        let count = loop {
            match self.inner.read(&mut self.raw) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        if count == 0 {
            return self.end();
        }
        self.read = self.read.saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
        if self.read > self.most {
            return Err(io::Error::other(too_large(self.most)));
        }
        let raw = std::mem::take(&mut self.raw);
        self.take(&raw[..count]);
        self.raw = raw;
        Ok(())
    }

    fn end(&mut self) -> io::Result<()> {
        // `ended` stays false, so that another read fails in the same way.
        if matches!(self.place, DumpPlace::Log { .. }) {
            return Err(io::Error::other(
                "ends in the middle of a container's log; write the dump again, with --output-directory",
            ));
        }
        self.ended = true;
        if let DumpPlace::Line(begun) = &mut self.place {
            self.buffer.append(begun);
        }
        Ok(())
    }

    fn take(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (place, rest) = match std::mem::replace(&mut self.place, DumpPlace::Document) {
                DumpPlace::Document => self.document(bytes),
                DumpPlace::Line(begun) => self.line(begun, bytes),
                DumpPlace::Log { end, last } => self.log(end, last, bytes),
                DumpPlace::AfterLog => match bytes.iter().position(|byte| *byte == b'\n') {
                    Some(found) => (DumpPlace::Line(Vec::new()), &bytes[found..][1..]),
                    None => (DumpPlace::AfterLog, &bytes[..0]),
                },
            };
            self.place = place;
            bytes = rest;
        }
    }

    /// A line that begins with `=` is in no JSON, and in YAML in no list of objects: it may be the head of a log.
    fn document<'b>(&mut self, bytes: &'b [u8]) -> (DumpPlace, &'b [u8]) {
        let lines = bytes.windows(2).position(|pair| pair == b"\n=");
        let kept = match lines {
            Some(found) => found + 1,
            None => bytes.len(),
        };
        let (kept, rest) = bytes.split_at(kept);
        self.buffer.extend_from_slice(kept);
        let place = if kept.ends_with(b"\n") { DumpPlace::Line(Vec::new()) } else { DumpPlace::Document };
        (place, rest)
    }

    fn line<'b>(&mut self, mut begun: Vec<u8>, bytes: &'b [u8]) -> (DumpPlace, &'b [u8]) {
        let until = bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |found| found + 1);
        let (more, rest) = bytes.split_at(until.min(MAX_HEAD));
        begun.extend_from_slice(more);
        let known = begun.len().min(LOG_BEGINS.len());
        if begun[..known] != LOG_BEGINS[..known] || begun.len() >= MAX_HEAD {
            self.buffer.append(&mut begun);
            let ends = self.buffer.ends_with(b"\n");
            return (if ends { DumpPlace::Line(Vec::new()) } else { DumpPlace::Document }, rest);
        }
        if !begun.ends_with(b"\n") {
            return (DumpPlace::Line(begun), rest);
        }
        self.buffer.push(b'\n');
        let end = [LOG_ENDS, begun[LOG_BEGINS.len()..].trim_ascii_end()].concat();
        (DumpPlace::Log { end, last: Vec::new() }, rest)
    }

    /// Passes over a log. The line that ends it may follow the log's last byte without a line break.
    fn log<'b>(&mut self, end: Vec<u8>, mut last: Vec<u8>, bytes: &'b [u8]) -> (DumpPlace, &'b [u8]) {
        let before = last.len();
        last.extend_from_slice(bytes);
        let found = last.windows(end.len()).position(|window| window == end);
        let passed = found.map_or(bytes.len(), |found| found + end.len() - before);
        // Line breaks are kept, so that the line number of an error is that of the file.
        let lines = bytes[..passed].split(|byte| *byte == b'\n').count() - 1;
        self.buffer.resize(self.buffer.len() + lines, b'\n');
        if found.is_some() {
            return (DumpPlace::AfterLog, &bytes[passed..]);
        }
        let keep = last.len().min(end.len() - 1);
        let last = last.split_off(last.len() - keep);
        (DumpPlace::Log { end, last }, &bytes[passed..])
    }

    /// Refuses a text that has no end.
    fn texts_end(&mut self) -> io::Result<()> {
        let bytes = self.buffer.as_slice();
        let is_end = |at: &usize| bytes[*at] == b'"' && (*at == 0 || bytes[at - 1] != b'\\');
        self.since_quote = match (0..bytes.len()).rev().find(is_end) {
            Some(at) => bytes.len() - at,
            None => self.since_quote + bytes.len(),
        };
        if self.since_quote > MAX_TEXT {
            return Err(io::Error::other("has a text of over 16 MiB, which no object of a cluster has"));
        }
        Ok(())
    }
}

impl Read for Reader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.at == self.buffer.len() && !self.ended {
            self.buffer.clear();
            self.at = 0;
            self.fill()?;
            self.texts_end()?;
        }
        let count = into.len().min(self.buffer.len() - self.at);
        into[..count].copy_from_slice(&self.buffer[self.at..][..count]);
        self.at += count;
        Ok(count)
    }
}

fn too_large(most: u64) -> String {
    let shown = if most >= 1 << 30 { format!("{} GiB", most >> 30) } else { format!("{most} bytes") };
    format!("is over {shown}, the most that is read of one file; give fewer kinds or namespaces a file")
}

/// Refuses a file that says itself that it is too large.
pub(super) fn fits(length: u64) -> Result<(), String> {
    if length > MAX_BYTES { Err(too_large(MAX_BYTES)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hands out so many bytes at a time.
    struct Slow(Vec<u8>, usize);

    impl Read for Slow {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let count = self.1.min(into.len()).min(self.0.len());
            into[..count].copy_from_slice(&self.0[..count]);
            self.0.drain(..count);
            Ok(count)
        }
    }

    fn read(text: &str, at_once: usize) -> Result<String, String> {
        let mut out = String::new();
        let mut reader = Reader::new(Box::new(Slow(text.as_bytes().to_vec(), at_once)));
        reader.read_to_string(&mut out).map_err(|error| error.to_string())?;
        Ok(out)
    }

    #[test]
    fn logs_between_documents_are_passed_over() {
        let head = |word: &str| format!("==== {word} logs for container c of pod kube-system/p ====\n");
        let (start, end) = (head("START"), head("END"));
        for (text, kept) in [
            ("{}\n".to_owned(), "{}\n".to_owned()),
            (format!("{{}}\n{start}I am {{ a log\n\n{end}{{}}\n"), "{}\n\n\n\n{}\n".to_owned()),
            (format!("{{}}\n{start}no line end{end}{{}}"), "{}\n\n{}".to_owned()),
            (format!("{{}}\n{start}{end}{start}{end}{{}}"), "{}\n\n\n{}".to_owned()),
            (format!("{start}==== END logs for another\n{end}{{}}"), "\n\n{}".to_owned()),
            ("==== something else\nx\n=\n".to_owned(), "==== something else\nx\n=\n".to_owned()),
            ("=".to_owned(), "=".to_owned()),
        ] {
            for at_once in [1, 2, 7, 100_000] {
                assert_eq!(read(&text, at_once).unwrap(), kept, "{at_once} of {text:?}");
            }
        }
        let error = read(&format!("{{}}\n{start}cut"), 3).unwrap_err();
        assert_eq!(
            error,
            "ends in the middle of a container's log; write the dump again, with --output-directory"
        );
    }

    #[test]
    fn what_is_read_ends() {
        let mut long = Reader::bounded(Box::new(io::repeat(b' ')), 1 << 20);
        let error = io::copy(&mut long, &mut io::sink()).unwrap_err().to_string();
        assert!(error.starts_with("is over 1048576 bytes"), "{error}");
        let mut text = Reader::new(Box::new(Read::chain(&b"{\"a\": \""[..], io::repeat(b'x'))));
        let error = io::copy(&mut text, &mut io::sink()).unwrap_err().to_string();
        assert!(error.starts_with("has a text of over 16 MiB"), "{error}");
        let quoted = b"\\\"".repeat(10 << 20);
        let mut text = Reader::new(Box::new(Read::chain(&b"{\"a\": \""[..], io::Cursor::new(quoted))));
        assert!(io::copy(&mut text, &mut io::sink()).is_err(), "quotes inside of it end no text");
    }
}
