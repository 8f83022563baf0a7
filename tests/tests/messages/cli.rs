//! One sample of every error of `wpack-cli`.

use wpack_cli::Error;

use super::refused;

pub(super) fn all() -> Vec<Error> {
    vec![
        Error::Usage {
            what: "arguments that contradict each other".into(),
            hint: "write it so".into(),
        },
        Error::Glob {
            option: "--include",
            pattern: "blocks.*".into(),
            source: globset::Glob::new("[").unwrap_err(),
        },
        Error::NoComponent {
            name: "blocks.0.weight".into(),
            have: vec!["dit".into(), "vae".into()],
        },
        Error::Damaged {
            path: "model.wpack".into(),
            parts: 2,
        },
        Error::Differs {
            path: "model.wpack".into(),
            different: 2,
            missing: 96,
            extra: 4,
        },
        Error::NotExportable {
            component: "dit".into(),
            tensor: "blocks.0.weight".into(),
            why: "what is in the way".into(),
        },
        Error::Incomplete {
            tensor: "blocks.0.weight".into(),
            found: 4095,
            expected: 4096,
        },
        Error::Exists {
            path: "model.wpack".into(),
        },
        Error::Read {
            path: "plan.toml".into(),
            source: refused(),
        },
        Error::PlanFile {
            path: "plan.toml".into(),
            source: wpack_plan::Error::PlanFile {
                line: Some(3),
                why: "what is in the way".into(),
            },
        },
        Error::Write {
            path: "model.wpack".into(),
            source: refused(),
        },
        Error::Registry {
            path: "packs.json".into(),
            source: serde_json::from_str::<u8>("x").unwrap_err(),
        },
        Error::Output(refused()),
        Error::Signals(refused()),
        Error::Internal {
            what: "arguments that contradict each other".into(),
        },
        Error::Interrupted,
    ]
}
