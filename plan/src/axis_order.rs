//! In which order projects list the axes of a mesh. With the same sizes but another order, another rank
//! holds another slice.

use wpack_format::MeshAxis;

/// Projects, and their axes from the slowest to the fastest.
const ORDERS: [(&str, &[&str]); 6] = [
    // transformers/distributed: dense (pp, dp_replicate, fsdp, tp), experts (pp, dp_replicate, efsdp, ep).
    (
        "transformers",
        &["pp", "dp_replicate", "fsdp", "efsdp", "ep", "tp"],
    ),
    // accelerate ParallelismConfig.
    (
        "accelerate",
        &["dp_replicate", "dp_shard", "cp", "sp", "tp"],
    ),
    // Megatron-Core's default order `tp-cp-ep-dp-pp`, which lists the fastest first.
    ("megatron", &["pp", "dp", "ep", "cp", "tp"]),
    // vLLM initialize_model_parallel.
    ("vllm", &["dp", "pp", "pcp", "tp"]),
    // DeepSpeed PipeModelDataParallelTopology.
    ("deepspeed", &["pp", "dp", "tp"]),
    // xDiT's `tp-sp-pp-cfg-dp`, which lists the fastest first.
    ("xdit", &["dp", "cfg", "pp", "sp", "tp"]),
];

/// Puts axes into the order of a project.
pub(crate) fn sort(project: &str, axes: &mut [MeshAxis]) -> Result<(), String> {
    let Some((_, order)) = ORDERS.iter().find(|(name, _)| *name == project) else {
        let known: Vec<&str> = ORDERS.iter().map(|(name, _)| *name).collect();
        return Err(format!(
            "`{project}` is none of the projects whose order is known: {}",
            known.join(", ")
        ));
    };
    let place = |axis: &MeshAxis| order.iter().position(|name| *name == axis.name);
    if let Some(axis) = axes.iter().find(|axis| place(axis).is_none()) {
        return Err(format!(
            "{project} has no axis `{}`, only {}",
            axis.name,
            order.join(", ")
        ));
    }
    axes.sort_by_key(place);
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::Mesh;

    #[test]
    fn projects_differ() {
        let sorted = |text: &str| Mesh::parse(text).map(|mesh| mesh.to_string());
        let is = |text: &str, mesh: &str| assert_eq!(sorted(text).as_deref(), Ok(mesh), "{text}");
        is("transformers:tp=2,fsdp=4,pp=3", "pp=3,fsdp=4,tp=2");
        is(
            "accelerate:tp=2,dp_shard=4,dp_replicate=3",
            "dp_replicate=3,dp_shard=4,tp=2",
        );
        is("megatron:tp=2,dp=4,pp=3", "pp=3,dp=4,tp=2");
        is("vllm:tp=2,dp=4,pp=3", "dp=4,pp=3,tp=2");
        is("deepspeed: tp=2, dp=4, pp=3", "pp=3,dp=4,tp=2");
        is("xdit:tp=2,pp=3,dp=4", "dp=4,pp=3,tp=2");
        // The same sizes, another rank at the same place.
        let at = |text: &str| Mesh::parse(text).unwrap().coords(5).unwrap();
        assert_ne!(at("megatron:pp=2,dp=4"), at("vllm:pp=2,dp=4"));
        for text in ["megatron:fsdp=2", "colossal:tp=2", "megatron:", ":tp=2"] {
            assert_eq!(
                Mesh::parse(text).unwrap_err().code(),
                "mesh-syntax",
                "{text}"
            );
        }
    }
}
