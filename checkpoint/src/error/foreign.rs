//! Files that are something else.

use std::fmt;

/// What a file that is no checkpoint is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Foreign {
    /// No bytes at all.
    Empty,
    /// The text that Git LFS keeps in place of a file.
    LfsPointer,
    /// A web page.
    HtmlPage,
    /// A JSON text, such as the answer of a server.
    JsonText,
    /// Any other text.
    Text,
    /// Zero bytes only, as far as looked at.
    AllZero,
    /// A gzip stream.
    Gzip,
    /// A compressed or archived file of another kind.
    Compressed,
    /// A GGUF file.
    Gguf,
    /// An HDF5 file (Keras).
    Hdf5,
    /// A numpy array.
    Npy,
    /// An archive of numpy arrays.
    Npz,
    /// A Lua Torch7 file.
    Torch7,
    /// An image.
    Image,
    /// A zip archive without `data.pkl`.
    ZipOfFiles,
    /// A tar archive that PyTorch did not write.
    TarOfFiles,
    /// A wpack packfile.
    Pack,
    /// Nothing that is known.
    Unknown,
}

impl Foreign {
    /// Stable kebab-case name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Empty => "empty-file",
            Self::LfsPointer => "lfs-pointer",
            Self::HtmlPage => "html-page",
            Self::JsonText => "json-text",
            Self::Text => "text",
            Self::AllZero => "all-zero",
            Self::Gzip => "gzip",
            Self::Compressed => "compressed",
            Self::Gguf => "gguf",
            Self::Hdf5 => "hdf5",
            Self::Npy => "npy",
            Self::Npz => "npz",
            Self::Torch7 => "torch7",
            Self::Image => "image",
            Self::ZipOfFiles => "zip-without-data.pkl",
            Self::TarOfFiles => "tar-of-files",
            Self::Pack => "packfile",
            Self::Unknown => "unknown",
        }
    }

    const fn text(self) -> &'static str {
        match self {
            Self::Empty => "an empty file",
            Self::LfsPointer => "a Git LFS pointer",
            Self::HtmlPage => "a web page",
            Self::JsonText => "a JSON text",
            Self::Text => "a text",
            Self::AllZero => "a file of zero bytes (a download that was prepared but not written)",
            Self::Gzip => "a gzip stream",
            Self::Compressed => "a compressed archive",
            Self::Gguf => "a GGUF file",
            Self::Hdf5 => "an HDF5 file",
            Self::Npy => "a numpy array",
            Self::Npz => "a numpy archive",
            Self::Torch7 => "a Lua Torch7 file",
            Self::Image => "an image",
            Self::ZipOfFiles => "a zip archive of files (no data.pkl)",
            Self::TarOfFiles => "a tar archive of files",
            Self::Pack => "a packfile",
            Self::Unknown => "bytes of an unknown kind",
        }
    }

    /// What to do about it.
    pub(super) const fn remedy(self) -> &'static str {
        match self {
            Self::Empty | Self::AllZero => "download the file again and compare its size",
            Self::LfsPointer => "fetch the weights: git lfs pull",
            Self::HtmlPage | Self::JsonText => {
                "the server answered with an error: download again, signed in if need be"
            }
            Self::Gzip => "unpack it first: gunzip --keep FILE",
            Self::ZipOfFiles | Self::TarOfFiles | Self::Compressed => {
                "unpack it and give the checkpoint inside"
            }
            Self::Pack => "a packfile is an output: give the checkpoint that it was made from",
            Self::Gguf | Self::Hdf5 | Self::Npy | Self::Npz | Self::Torch7 => {
                "convert it to safetensors with its own tool first"
            }
            Self::Text | Self::Image | Self::Unknown => {
                "give a safetensors file, a file that torch.save wrote, or a model folder"
            }
        }
    }
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}
