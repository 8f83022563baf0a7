//! What a file is, told by its content alone.

use std::{path::Path, sync::Arc};

use crate::{
    Error, Warning,
    error::Foreign,
    file::{SourceReader, base_name},
    safetensors::HEADER_LIMIT,
};

/// A container that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Container {
    /// safetensors.
    Safetensors,
    /// What `torch.save` writes since 1.6.
    TorchZip,
    /// What it wrote from 0.1.10 to 1.5.
    TorchLegacy,
    /// What it wrote before.
    TorchTar,
}

impl Container {
    /// Stable name.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Safetensors => "safetensors",
            Self::TorchZip => "torch-zip",
            Self::TorchLegacy => "torch-legacy",
            Self::TorchTar => "torch-tar",
        }
    }

    /// A warning if the extension promises another container.
    pub(crate) fn extension_warning(self, path: &Path) -> Option<Warning> {
        let extension = path.extension()?.to_str()?.to_ascii_lowercase();
        let safetensors = match extension.as_str() {
            "safetensors" | "sft" => true,
            "pt" | "pth" | "bin" | "ckpt" | "pkl" | "pickle" | "tar" => false,
            _ => return None,
        };
        if safetensors == (self == Self::Safetensors) {
            return None;
        }
        Some(Warning {
            code: "extension-mismatch",
            message: format!(
                "{} is a {} file in spite of its name",
                base_name(path),
                self.name()
            ),
        })
    }
}

/// Bytes looked at in front.
const HEAD: u64 = 64 << 10;
/// A zip's end record and its longest comment.
const ZIP_TAIL: u64 = 22 + 65_535;
/// `torch.save` below protocol 2: the magic number in digits.
const LEGACY_MAGIC_TEXT: &[u8] = b"L119547037146038801333356L\n";

/// Tells the container, or says what the file is instead.
pub(crate) fn detect(file: &Arc<SourceReader>) -> Result<Container, Error> {
    let head = file.head(HEAD)?;
    match look(&head, file.size()) {
        Look::Is(container) => Ok(container),
        Look::Foreign(found) => Err(Error::NotACheckpoint {
            path: file.path().to_owned(),
            found,
        }),
        Look::Unsupported(what) => Err(Error::UnsupportedFormat {
            path: file.path().to_owned(),
            what: what.to_owned(),
            remedy: Some("load it where it was made and save a state dict of tensors".to_owned()),
        }),
        Look::Short => Err(Error::Truncated {
            path: file.path().to_owned(),
            what: "the length field in front".to_owned(),
            need: 8,
            have: file.size(),
        }),
        Look::Unknown => {
            if has_zip_end(file)? {
                return Ok(Container::TorchZip);
            }
            Err(Error::NotACheckpoint {
                path: file.path().to_owned(),
                found: Foreign::Unknown,
            })
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Look {
    Is(Container),
    Foreign(Foreign),
    Unsupported(&'static str),
    Short,
    Unknown,
}

/// Judges the first bytes of a file of `size` bytes.
fn look(head: &[u8], size: u64) -> Look {
    if size == 0 {
        return Look::Foreign(Foreign::Empty);
    }
    if head.starts_with(b"version https://git-lfs") {
        return Look::Foreign(Foreign::LfsPointer);
    }
    if head.starts_with(b"PK\x03\x04") {
        return Look::Is(Container::TorchZip);
    }
    // Before every other magic number: a header length may look like one of them, such as 128 like
    // the first opcode of a pickle.
    if is_safetensors(head, size) {
        return Look::Is(Container::Safetensors);
    }
    if head.get(257..262) == Some(b"ustar") {
        return Look::Is(Container::TorchTar);
    }
    if let [0x80, 0..=5, ..] = head {
        return Look::Is(Container::TorchLegacy);
    }
    if head.starts_with(LEGACY_MAGIC_TEXT) {
        return Look::Is(Container::TorchLegacy);
    }
    if let Some(found) = by_magic(head) {
        return Look::Foreign(found);
    }
    // A FlatBuffer, whose identifier stands behind the offset of its root: `ET01` to `ET12` so far.
    if let Some([b'E', b'T', b'0'..=b'9', b'0'..=b'9']) = head.get(4..8) {
        return Look::Unsupported("an ExecuTorch program (.pte)");
    }
    if [&b"(dp"[..], b"(lp", b"}q", b"]q"]
        .iter()
        .any(|magic| head.starts_with(magic))
    {
        return Look::Unsupported("plain pickle, not torch.save");
    }
    if head.iter().all(|byte| *byte == 0) {
        return Look::Foreign(Foreign::AllZero);
    }
    if let Some(found) = by_text(head, size) {
        return Look::Foreign(found);
    }
    if size < 8 { Look::Short } else { Look::Unknown }
}

/// A length field and the start of a JSON text: the header's own reader says what is wrong with it.
fn is_safetensors(head: &[u8], size: u64) -> bool {
    let Some((length, rest)) = head.split_first_chunk::<8>() else {
        return false;
    };
    let len = u64::from_le_bytes(*length);
    let json = rest
        .iter()
        .find(|byte| !matches!(byte, b' ' | b'\t' | b'\n' | b'\r'));
    if json == Some(&b'{') {
        // Eight characters of text as a number exceed every limit.
        return len <= HEADER_LIMIT || !head.iter().take(64).all(|byte| is_text(*byte));
    }
    let backed = len >= 2 && len.checked_add(8).is_some_and(|end| end <= size);
    backed && (json == Some(&b'[') || rest.starts_with(b"\xef\xbb\xbf"))
}

fn by_magic(head: &[u8]) -> Option<Foreign> {
    const MAGICS: [(&[u8], Foreign); 17] = [
        (b"\x1f\x8b", Foreign::Gzip),
        (b"GGUF", Foreign::Gguf),
        (b"\x89HDF\r\n\x1a\n", Foreign::Hdf5),
        (b"\x93NUMPY", Foreign::Npy),
        (b"\x89PNG", Foreign::Image),
        (b"\xff\xd8\xff", Foreign::Image),
        (b"GIF8", Foreign::Image),
        (b"BM", Foreign::Image),
        (b"\x28\xb5\x2f\xfd", Foreign::Compressed),
        (b"\xfd7zXZ", Foreign::Compressed),
        (b"7z\xbc\xaf\x27\x1c", Foreign::Compressed),
        (b"Rar!\x1a\x07", Foreign::Compressed),
        (b"BZh", Foreign::Compressed),
        (b"\x04\x22\x4d\x18", Foreign::Compressed),
        (b"\x89WPACK\r\n", Foreign::Pack),
        // Torch7: type number 3 (table), then index 1; 4 (object), then index 1.
        (b"\x03\0\0\0\x01\0\0\0", Foreign::Torch7),
        (b"\x04\0\0\0\x01\0\0\0", Foreign::Torch7),
    ];
    if head.starts_with(b"RIFF") && head.get(8..12) == Some(b"WEBP") {
        return Some(Foreign::Image);
    }
    MAGICS
        .iter()
        .find(|(magic, _)| head.starts_with(magic))
        .map(|(_, found)| *found)
}

fn is_text(byte: u8) -> bool {
    matches!(byte, b'\t' | b'\n' | b'\r' | 0x20..=0x7e | 0x80..)
}

fn by_text(head: &[u8], size: u64) -> Option<Foreign> {
    // A character may be cut where the head ends.
    let valid = match std::str::from_utf8(head) {
        Ok(text) => text,
        Err(error) if error.error_len().is_none() && u64::try_from(head.len()) != Ok(size) => {
            std::str::from_utf8(head.get(..error.valid_up_to())?).ok()?
        }
        Err(_) => return None,
    };
    let text = valid.strip_prefix('\u{feff}').unwrap_or(valid);
    if !text.bytes().all(is_text) {
        return None;
    }
    match text.trim_start().chars().next() {
        Some('<') => Some(Foreign::HtmlPage),
        Some('{') => Some(Foreign::JsonText),
        _ => Some(Foreign::Text),
    }
}

/// An end record whose directory would lie in front of it: something was put before the archive.
fn has_zip_end(file: &SourceReader) -> Result<bool, Error> {
    let len = file.size().min(ZIP_TAIL);
    let tail = file.read_vec(file.size() - len, len, "the end of the file")?;
    Ok(tail.windows(22).any(|record| {
        let field = |at: usize| {
            record
                .get(at..)
                .and_then(|rest| rest.first_chunk())
                .map(|raw| u32::from_le_bytes(*raw))
        };
        let directory = field(12).zip(field(16));
        record.starts_with(b"PK\x05\x06")
            && directory.is_some_and(|(bytes, at)| {
                (bytes, at) == (u32::MAX, u32::MAX)
                    || (bytes > 0 && u64::from(bytes) + u64::from(at) <= file.size())
            })
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_executorch_program_is_named() {
        let mut head = vec![0x30, 0, 0, 0];
        head.extend(b"ET12eh00");
        assert_eq!(
            look(&head, 4096),
            Look::Unsupported("an ExecuTorch program (.pte)")
        );
        head.truncate(4);
        head.extend(b"ETXXeh00");
        assert_eq!(look(&head, 4096), Look::Unknown);
    }

    #[test]
    fn text_and_length_fields_are_told_apart() {
        let json = br#"{"error":{"code":403}}"#;
        assert_eq!(look(json, 22), Look::Foreign(Foreign::JsonText));
        // 123 is `{`: a header of that length, not a text.
        let mut header = b"\x7b\0\0\0\0\0\0\0{".to_vec();
        header.resize(131, b' ');
        assert_eq!(look(&header, 131), Look::Is(Container::Safetensors));
        assert_eq!(look(b"0123456 {}", 10), Look::Foreign(Foreign::Text));
        assert_eq!(
            look(b"\xef\xbb\xbf<html>", 9),
            Look::Foreign(Foreign::HtmlPage)
        );
        assert_eq!(look(b"\xff\x00\x01", 3), Look::Short);
    }
}
