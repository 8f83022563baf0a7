//! An open pack.

use std::{collections::BTreeSet, path::PathBuf, sync::Arc};

use pyo3::{
    prelude::*,
    types::{PyBytes, PyDict},
};
use wpack_format::{Owners, TensorTable};
use wpack_loader::{Error, FileSource, Index, MapMode, ResliceOptions};
use wpack_plan::{Mesh, PlanFile};

use crate::{error, shard::NativeShard};

/// An open pack: header and index, checked; no data has been read.
#[pyclass(frozen, module = "wpack._wpack")]
pub(crate) struct NativePack {
    opened: Arc<Opened>,
}

/// What a pack and its shards have in common.
pub(crate) struct Opened {
    pub(crate) file: FileSource,
    pub(crate) index: Index,
    pub(crate) mode: MapMode,
}

impl Opened {
    fn tensors_of(&self, component: &str) -> Result<Arc<TensorTable>, Error> {
        self.index
            .tensors(&self.file, self.index.component(component)?)
    }
}

/// What a pack is opened as; the pack's own where it says nothing.
#[derive(Clone, Default)]
pub(crate) struct Target {
    pub(crate) layout: Option<String>,
    pub(crate) mesh: Option<Mesh>,
    pub(crate) plan: Option<PlanFile>,
}

impl Target {
    fn new(
        py: Python<'_>,
        layout: Option<String>,
        mesh: Option<&str>,
        plan: Option<&str>,
    ) -> PyResult<Self> {
        let mesh = mesh.map(Mesh::parse).transpose();
        let plan = plan.map(PlanFile::parse).transpose();
        Ok(Self {
            layout,
            mesh: mesh.map_err(|error| error::plan(py, &error))?,
            plan: plan.map_err(|error| error::plan(py, &error))?,
        })
    }

    /// Whether it is what the pack was made for.
    pub(crate) fn is_own(&self, index: &Index, ranks: u32) -> bool {
        let description = &index.root().description;
        let layout = self.layout.as_ref();
        let mesh = self.mesh.as_ref().map(Mesh::axes);
        self.plan.is_none()
            && layout.is_none_or(|layout| *layout == description.layout)
            && index.ranks().is_none_or(|own| own == ranks)
            && mesh.is_none_or(|axes| description.mesh.as_ref().is_none_or(|own| own == axes))
    }

    /// What the loader is asked for.
    pub(crate) fn options(&self, rank: u32, ranks: u32) -> ResliceOptions {
        let mut options = ResliceOptions::new(rank).with_ranks(ranks);
        options.layout.clone_from(&self.layout);
        options.mesh.clone_from(&self.mesh);
        options.plan.clone_from(&self.plan);
        options
    }
}

#[pymethods]
impl NativePack {
    /// Opens a file: its exact length, header and root are checked.
    #[new]
    #[pyo3(signature = (path, read_only=false))]
    fn new(py: Python<'_>, path: PathBuf, read_only: bool) -> PyResult<Self> {
        let opened = py.detach(|| {
            let file = FileSource::open(path)?;
            let index = Index::read(&file)?;
            let mode = if read_only {
                MapMode::ReadOnly
            } else {
                MapMode::CopyOnWrite
            };
            Ok(Opened { file, index, mode })
        });
        match opened {
            Ok(opened) => Ok(Self {
                opened: Arc::new(opened),
            }),
            Err(error) => Err(error::loader(py, &error)),
        }
    }

    /// Names of the components, in file order.
    #[getter]
    fn components(&self) -> Vec<String> {
        let components = &self.opened.index.root().components;
        components
            .iter()
            .map(|component| component.name.clone())
            .collect()
    }

    /// Axes of the mesh and ranks along each, the last varies fastest; `None` for a pack that fits any
    /// number of ranks.
    #[getter]
    fn mesh(&self) -> Option<Vec<(String, u32)>> {
        let axes = self.opened.index.root().description.mesh.as_ref()?;
        Some(
            axes.iter()
                .map(|axis| (axis.name.clone(), axis.size))
                .collect(),
        )
    }

    /// Ranks of the mesh; `None` for a pack that fits any number.
    #[getter]
    fn world_size(&self) -> Option<u32> {
        self.opened.index.ranks()
    }

    /// Layout it was made for.
    #[getter]
    fn layout(&self) -> &str {
        &self.opened.index.root().description.layout
    }

    /// Layout of each component.
    #[getter]
    fn layouts(&self) -> Vec<(String, String)> {
        let components = &self.opened.index.root().description.components;
        components
            .iter()
            .map(|one| (one.name.clone(), one.layout.clone()))
            .collect()
    }

    /// SHA-256 of the root, lower-case hexadecimal: the pack's identity.
    #[getter]
    fn digest(&self) -> String {
        use std::fmt::Write as _;
        self.opened
            .index
            .digest()
            .iter()
            .fold(String::new(), |mut text, byte| {
                let _ = write!(text, "{byte:02x}");
                text
            })
    }

    /// Bytes of the file.
    #[getter]
    fn nbytes(&self) -> u64 {
        self.opened.index.header().file_len
    }

    /// Extents: component, first byte in the file, bytes, and whether every rank holds it.
    #[getter]
    fn extents(&self) -> Vec<(String, u64, u64, bool)> {
        let root = self.opened.index.root();
        let extents = root.extents.iter().map(|extent| {
            let component = root.components.get(extent.component as usize);
            let name = component
                .map(|component| component.name.clone())
                .unwrap_or_default();
            (
                name,
                extent.offset,
                extent.len,
                extent.owners == Owners::All,
            )
        });
        extents.collect()
    }

    /// The pack maker's text metadata, or a component's checkpoint metadata.
    #[pyo3(signature = (component=None))]
    fn metadata<'py>(
        &self,
        py: Python<'py>,
        component: Option<&str>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let description = &self.opened.index.root().description;
        let found = match component {
            None => &description.metadata,
            Some(name) => {
                let index = self.opened.index.component(name);
                let index = index.map_err(|error| error::loader(py, &error))?;
                let Some(info) = description.components.get(index as usize) else {
                    return Ok(PyDict::new(py));
                };
                &info.metadata
            }
        };
        let out = PyDict::new(py);
        for (key, value) in found {
            out.set_item(key, value)?;
        }
        Ok(out)
    }

    /// Embedded files: component (`None` for the pack's own), path, bytes.
    #[getter]
    fn files(&self) -> Vec<(Option<String>, String, u64)> {
        let files = &self.opened.index.root().description.files;
        files
            .iter()
            .map(|file| (file.component.clone(), file.path.clone(), file.len))
            .collect()
    }

    /// Contents of an embedded file, its SHA-256 checked; `None` if there is none of that name.
    #[pyo3(signature = (path, component=None))]
    fn file<'py>(
        &self,
        py: Python<'py>,
        path: &str,
        component: Option<&str>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let files = &self.opened.index.root().description.files;
        let found = files
            .iter()
            .find(|file| file.path == path && file.component.as_deref() == component);
        let Some(found) = found else { return Ok(None) };
        let bytes = self.opened.index.file(&self.opened.file, found);
        Ok(Some(PyBytes::new(
            py,
            &bytes.map_err(|error| error::loader(py, &error))?,
        )))
    }

    /// Files that a component was made from: base name, bytes, and SHA-256 in lower-case hexadecimal if it
    /// was recorded.
    fn sources(
        &self,
        py: Python<'_>,
        component: &str,
    ) -> PyResult<Vec<(String, u64, Option<String>)>> {
        let used = py.detach(|| -> Result<_, Error> {
            let table = self.opened.tensors_of(component)?;
            Ok(table
                .iter()
                .filter_map(|tensor| tensor.source)
                .collect::<BTreeSet<u32>>())
        });
        let used = used.map_err(|error| error::loader(py, &error))?;
        let sources = &self.opened.index.root().description.sources;
        let found = used.into_iter().filter_map(|at| sources.get(at as usize));
        Ok(found
            .map(|one| (one.name.clone(), one.size, one.sha256.clone()))
            .collect())
    }

    /// Names in a component's checkpoint and in the pack, in file order, ties included.
    fn source_names(&self, py: Python<'_>, component: &str) -> PyResult<Vec<(String, String)>> {
        let names = py.detach(|| -> Result<Vec<_>, Error> {
            let table = self.opened.tensors_of(component)?;
            let names = table.iter().flat_map(|tensor| tensor.names());
            Ok(names
                .map(|name| (name.source.to_owned(), name.name.to_owned()))
                .collect())
        });
        names.map_err(|error| error::loader(py, &error))
    }

    /// Ranks that a mesh or the text of a plan file speaks of; `None` if neither says.
    #[staticmethod]
    #[pyo3(signature = (mesh=None, plan=None))]
    fn ranks(py: Python<'_>, mesh: Option<&str>, plan: Option<&str>) -> PyResult<Option<u32>> {
        let target = Target::new(py, None, mesh, plan)?;
        let request = target.plan.as_ref().map(PlanFile::request).transpose();
        let request = request.map_err(|error| error::plan(py, &error))?;
        let of_plan = request.and_then(|request| {
            let mesh = request.mesh.as_ref().map(Mesh::ranks);
            mesh.or(request.ranks)
        });
        Ok(target.mesh.as_ref().map(Mesh::ranks).or(of_plan))
    }

    /// What a rank holds: reads and checks its own tables. For another world size, mesh, layout or plan
    /// than the pack's: those of all ranks.
    #[pyo3(signature = (rank, world_size, layout=None, components=None, mesh=None, plan=None))]
    #[expect(clippy::too_many_arguments, reason = "keywords in Python")]
    fn shard(
        &self,
        py: Python<'_>,
        rank: u32,
        world_size: u32,
        layout: Option<String>,
        components: Option<Vec<String>>,
        mesh: Option<&str>,
        plan: Option<&str>,
    ) -> PyResult<NativeShard> {
        let target = Target::new(py, layout, mesh, plan)?;
        let made = py.detach(|| {
            NativeShard::new(
                Arc::clone(&self.opened),
                rank,
                world_size,
                target,
                components.as_deref(),
            )
        });
        made.map_err(|error| error::loader(py, &error))
    }
}
