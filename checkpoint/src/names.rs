//! What file names say: kind of weights, shard numbers, variants. Content decides what a file is;
//! names only decide which files of a folder belong together.

/// Stems under which frameworks save the weights of the one model of a folder, best first.
const STANDARD_STEMS: [&str; 4] = [
    "model",
    "diffusion_pytorch_model",
    "pytorch_model",
    "consolidated",
];

/// A file that may hold weights, by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WeightName {
    /// Whether the extension is that of safetensors.
    pub(crate) safetensors: bool,
    /// What the files of one model have in common, such as `model` or `model.fp16`.
    pub(crate) stem: String,
    /// Number of the shard and how many there are.
    pub(crate) shard: Option<(u32, u32)>,
}

impl WeightName {
    /// None for a name that promises no weights.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        if name.starts_with('.') {
            return None;
        }
        let (rest, extension) = name.rsplit_once('.')?;
        let (rest, extension) = match extension.to_ascii_lowercase().as_str() {
            // `model.pth.tar` is an old habit.
            "tar" => rest.rsplit_once('.')?,
            _ => (rest, extension),
        };
        let safetensors = match extension.to_ascii_lowercase().as_str() {
            "safetensors" | "sft" => true,
            "pt" | "pth" | "bin" | "ckpt" => false,
            _ => return None,
        };
        let (stem, shard) = match split_shard(rest) {
            Some((stem, shard)) => (stem, Some(shard)),
            None => (split_consolidated(rest), None),
        };
        Some(Self {
            safetensors,
            stem: stem.to_owned(),
            shard,
        })
    }

    /// Whether it is what a trainer keeps beside weights: optimizer, scheduler, random state.
    pub(crate) fn is_training_state(name: &str) -> bool {
        let name = name.to_ascii_lowercase();
        let prefixes = [
            "optimizer",
            "scheduler",
            "scaler",
            "rng_state",
            "random_states",
        ];
        name == "training_args.bin" || prefixes.iter().any(|prefix| name.starts_with(prefix))
    }
}

/// `stem-00001-of-00003` into stem, number and count.
fn split_shard(name: &str) -> Option<(&str, (u32, u32))> {
    let (rest, count) = name.rsplit_once("-of-")?;
    let (stem, number) = rest.rsplit_once('-')?;
    let digits = |text: &str| -> Option<u32> {
        text.bytes()
            .all(|byte| byte.is_ascii_digit())
            .then(|| text.parse().ok())?
    };
    Some((stem, (digits(number)?, digits(count)?)))
}

/// `consolidated.00` into `consolidated`: parts of one model without a count.
fn split_consolidated(name: &str) -> &str {
    match name.split_once('.') {
        Some(("consolidated", number)) if number.bytes().all(|byte| byte.is_ascii_digit()) => {
            "consolidated"
        }
        _ => name,
    }
}

/// An index file by its name: `stem.safetensors.index.json` and variants of it.
pub(crate) fn parse_index(name: &str) -> Option<WeightName> {
    if name.starts_with('.') {
        return None;
    }
    let (front, variant) = match name.strip_suffix(".index.json") {
        Some(front) => (front, None),
        None => {
            let (front, variant) = name.strip_suffix(".json")?.rsplit_once(".index.")?;
            (front, Some(variant))
        }
    };
    let weights = WeightName::parse(front)?;
    let stem = match variant {
        Some(variant) => format!("{}.{variant}", weights.stem),
        None => weights.stem,
    };
    Some(WeightName { stem, ..weights })
}

/// Place of a standard stem among alternatives, and its variant; none for other names.
pub(crate) fn standard(stem: &str) -> Option<(usize, &str)> {
    let (base, variant) = stem.split_once('.').unwrap_or((stem, ""));
    let place = STANDARD_STEMS.iter().position(|known| *known == base)?;
    Some((place, variant))
}

/// Name of the component that a file or folder becomes among several.
pub(crate) fn component_of(stem: &str) -> String {
    let lower = stem.to_ascii_lowercase();
    let base = lower.split('.').next().unwrap_or_default();
    match base {
        "diffusion_pytorch_model" | "high_noise_model" => return "dit".to_owned(),
        "low_noise_model" => return "dit2".to_owned(),
        "model" | "pytorch_model" | "consolidated" => return "model".to_owned(),
        _ => {}
    }
    let words = [
        ("vae", "vae"),
        ("t5", "text_encoder"),
        ("clip", "image_encoder"),
    ];
    match words.iter().find(|(word, _)| lower.contains(word)) {
        Some((_, component)) => (*component).to_owned(),
        None => plain(stem),
    }
}

/// A stem as a component name: what is not allowed becomes `_`.
pub(crate) fn plain(stem: &str) -> String {
    let keep = |c: char| {
        if c.is_ascii_alphanumeric() || "-._".contains(c) {
            c
        } else {
            '_'
        }
    };
    let name: String = stem.chars().map(keep).collect();
    match name.chars().next() {
        Some(first) if first.is_ascii_alphanumeric() || first == '_' => name,
        _ => format!("_{name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Parts = (String, bool, Option<(u32, u32)>);

    fn parts(name: &str) -> Option<Parts> {
        WeightName::parse(name).map(|name| (name.stem, name.safetensors, name.shard))
    }

    #[test]
    fn names_of_weights() {
        let row = |stem: &str, safetensors, shard| Some((stem.to_owned(), safetensors, shard));
        assert_eq!(
            parts("model-00001-of-00003.safetensors"),
            row("model", true, Some((1, 3)))
        );
        assert_eq!(parts("Wan2.1_VAE.pth"), row("Wan2.1_VAE", false, None));
        assert_eq!(parts("resnet.pth.tar"), row("resnet", false, None));
        assert_eq!(
            parts("consolidated.00.pth"),
            row("consolidated", false, None)
        );
        assert_eq!(parts("FLUX.SAFETENSORS"), row("FLUX", true, None));
        let fp16 = "diffusion_pytorch_model.fp16-00002-of-00002.safetensors";
        assert_eq!(
            parts(fp16),
            row("diffusion_pytorch_model.fp16", true, Some((2, 2)))
        );
        assert_eq!(parts("config.json"), None);
        assert_eq!(parts("._model.safetensors"), None);
        assert_eq!(parts("tokenizer.model"), None);
    }

    #[test]
    fn names_of_indexes() {
        let stem = |name: &str| parse_index(name).map(|name| name.stem);
        assert_eq!(
            stem("model.safetensors.index.json").as_deref(),
            Some("model")
        );
        assert_eq!(
            stem("model.safetensors.index.fp16.json").as_deref(),
            Some("model.fp16")
        );
        assert_eq!(
            stem("model.fp16.safetensors.index.json").as_deref(),
            Some("model.fp16")
        );
        assert_eq!(
            stem("pytorch_model.bin.index.json").as_deref(),
            Some("pytorch_model")
        );
        assert_eq!(stem("config.json"), None);
        assert_eq!(stem("model_index.json"), None);
    }

    #[test]
    fn names_of_components() {
        assert_eq!(component_of("models_t5_umt5-xxl-enc-bf16"), "text_encoder");
        assert_eq!(component_of("Wan2.2_VAE"), "vae");
        assert_eq!(
            component_of("models_clip_open-clip-xlm-roberta"),
            "image_encoder"
        );
        assert_eq!(component_of("diffusion_pytorch_model.fp16"), "dit");
        assert_eq!(component_of("low_noise_model"), "dit2");
        assert_eq!(component_of("my lora"), "my_lora");
        assert_eq!(component_of("-x"), "_-x");
    }
}
