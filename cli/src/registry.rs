//! The list of packs that stand for checkpoint files: `wpack/packs.json` in the user's data folder.

use std::{
    env, fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::Error;

/// A registered pack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Registered {
    /// Absolute path.
    pub(crate) path: String,
    /// The model that it holds, as programs ask for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) model_id: Option<String>,
}

/// The file's content.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Content {
    packs: Vec<Registered>,
}

/// The list on disk.
pub(crate) struct Registry {
    file: PathBuf,
}

impl Registry {
    /// The user's own.
    pub(crate) fn of_user() -> Result<Self, Error> {
        let own = env::var_os("XDG_DATA_HOME").map(PathBuf::from);
        let own = own.filter(|path| path.is_absolute());
        let folder = own.or_else(|| Some(env::home_dir()?.join(".local/share")));
        let folder = folder.ok_or_else(|| Error::Usage {
            what: "there is no folder for the list of packs: this user has no home, and XDG_DATA_HOME is not set"
                .to_owned(),
            hint: "set XDG_DATA_HOME, or name packs in WPACK_PATH, which needs no list".to_owned(),
        })?;
        Ok(Self {
            file: folder.join("wpack/packs.json"),
        })
    }

    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// The packs, in the order in which they were registered.
    pub(crate) fn read(&self) -> Result<Vec<Registered>, Error> {
        let text = match fs::read(&self.file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(self.refused(error)),
        };
        let content: Content = serde_json::from_slice(&text).map_err(|source| Error::Registry {
            path: self.file.to_string_lossy().into_owned(),
            source,
        })?;
        Ok(content.packs)
    }

    /// Changes the list. Two programs that do so at once wait for each other; the file is replaced as a
    /// whole, so that a reader sees the old list or the new one.
    pub(crate) fn change(
        &self,
        change: impl FnOnce(&mut Vec<Registered>) -> Result<(), Error>,
    ) -> Result<Vec<Registered>, Error> {
        let folder = self.file.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder).map_err(|e| self.refused(e))?;
        let lock = fs::File::create(folder.join("packs.lock")).map_err(|e| self.refused(e))?;
        lock.lock().map_err(|e| self.refused(e))?;
        let mut packs = self.read()?;
        change(&mut packs)?;
        let mut text = serde_json::to_vec_pretty(&Content {
            packs: packs.clone(),
        })
        .map_err(|e| self.refused(e.into()))?;
        text.push(b'\n');
        let next = folder.join("packs.json.new");
        let written = fs::File::create(&next)
            .and_then(|mut file| {
                file.write_all(&text)?;
                file.sync_all()
            })
            .and_then(|()| fs::rename(&next, &self.file));
        if let Err(error) = written {
            // The first error is the one to tell.
            let _ = fs::remove_file(&next);
            return Err(self.refused(error));
        }
        Ok(packs)
    }

    fn refused(&self, source: io::Error) -> Error {
        Error::Write {
            path: self.file.to_string_lossy().into_owned(),
            source,
        }
    }
}
