//! Weights are resident once: repacked on the fast path, in the mapped file on the exact path.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "tests may stop here")]

use std::path::Path;

use bessemer::CacheType;
use bessemer::quant::{BlockFormat, Precision, Weights};
use bessemer_llm::file::{Format, GgufWriter, Metadata, Model, NewTensor, Value};
use bessemer_llm::model::{Input, Logits, Options, Workspace};
use bessemer_llm::pull::{self, State};
use bessemer_llm::{Cache, Transformer, memory};
use tempfile::TempDir;

const MEGABYTE: u64 = 1 << 20;

/// Bytes of a file that are resident in this process, by `/proc/self/smaps`.
fn resident_of(file: &Path) -> u64 {
    let file = file.canonicalize().unwrap();
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut is_of_file = false;
    let mut total = 0;
    for line in smaps.lines() {
        if line.contains('-') && !line.starts_with(|c: char| c.is_ascii_uppercase()) {
            is_of_file = line.ends_with(file.to_str().unwrap());
        }
        if let (true, Some(rest)) = (is_of_file, line.strip_prefix("Rss:")) {
            let kilobytes = rest.trim().strip_suffix("kB").unwrap().trim();
            total += 1024 * kilobytes.parse::<u64>().unwrap();
        }
    }
    total
}

/// Resets the peak.
fn reset_peak() {
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
}

/// Writes a model with the sizes of Qwen2.5 0.5B, except for fewer tokens and layers; the file is as large as that
/// model's layers.
fn write_half_billion(path: &Path) {
    let (layers, width, ffn, heads, kv, vocab) = (24, 896, 4864, 14, 2, 32768);
    let mut metadata = Metadata::default();
    metadata.set("general.architecture", Value::String("llama".to_owned()));
    for (key, value) in [
        ("block_count", layers),
        ("context_length", 512),
        ("embedding_length", width),
        ("feed_forward_length", ffn),
        ("attention.head_count", heads),
        ("attention.head_count_kv", kv),
    ] {
        metadata.set(&format!("llama.{key}"), Value::U32(value as u32));
    }
    metadata.set("llama.attention.layer_norm_rms_epsilon", Value::F32(1e-5));
    let kv_width = width / heads * kv;
    let mut tensors = Vec::new();
    let mut add = |name: String, format: Format, shape: &[usize]| {
        tensors.push(NewTensor {
            name: format!("{name}.weight"),
            format,
            shape: shape.to_vec(),
        });
    };
    add("token_embd".to_owned(), Format::Q8_0, &[vocab, width]);
    add("output_norm".to_owned(), Format::F32, &[width]);
    for i in 0..layers {
        for (name, format, shape) in [
            ("attn_norm", Format::F32, &[width][..]),
            ("attn_q", Format::Q4_0, &[width, width]),
            ("attn_k", Format::Q5_0, &[kv_width, width]),
            ("attn_v", Format::F16, &[kv_width, width]),
            ("attn_output", Format::Q4_0, &[width, width]),
            ("ffn_norm", Format::F32, &[width]),
            ("ffn_gate", Format::Q4_0, &[ffn, width]),
            ("ffn_up", Format::Q4_1, &[ffn, width]),
            ("ffn_down", Format::Q4_0, &[width, ffn]),
        ] {
            add(format!("blk.{i}.{name}"), format, shape);
        }
    }
    // One row per format, repeated.
    let values: Vec<f32> = (0..ffn).map(|i| (i as f32 * 0.61).sin() * 0.05).collect();
    let mut writer = GgufWriter::create(path, &metadata, &tensors).unwrap();
    for tensor in &tensors {
        let cols = *tensor.shape.last().unwrap();
        let values = &values[..cols];
        let row = match tensor.format {
            Format::F32 => vec![1.0_f32; cols]
                .iter()
                .flat_map(|v| v.to_le_bytes())
                .collect(),
            Format::F16 => values
                .iter()
                .flat_map(|v| half::f16::from_f32(*v).to_le_bytes())
                .collect(),
            other => {
                let format = BlockFormat::from_ggml_type(other.ggml_id().unwrap()).unwrap();
                bessemer::quant::quantize(format, values).unwrap()
            }
        };
        let rows = tensor.shape.iter().product::<usize>() / cols;
        writer.push(&row.repeat(rows)).unwrap();
    }
    writer.finish().unwrap();
}

/// Bytes of the matrices, in the file and repacked.
fn matrices(model: &Model) -> (u64, u64) {
    let (mut plain, mut repacked) = (0, 0);
    for tensor in model.tensors().filter(|t| t.shape.len() == 2) {
        let weights = match tensor.format {
            Format::F16 => Weights::F16,
            other => {
                let id = other.ggml_id().unwrap();
                Weights::Block(BlockFormat::from_ggml_type(id).unwrap())
            }
        };
        plain += tensor.bytes() as u64;
        let bytes = weights.repacked_bytes(tensor.shape[0], tensor.shape[1]);
        repacked += bytes.unwrap_or(tensor.bytes()) as u64;
    }
    (plain, repacked)
}

fn run(transformer: &Transformer) {
    let mut cache = Cache::new(transformer, CacheType::F16, 1, 64).unwrap();
    let vocab = u32::try_from(transformer.config().vocab).unwrap();
    let tokens: Vec<u32> = (0..48).map(|i| i * 977 % vocab).collect();
    let mut workspace = Workspace::default();
    for tokens in [&tokens[..40], &tokens[40..41]] {
        let input = Input {
            sequence: 0,
            tokens,
            logits: Logits::Last,
        };
        transformer
            .forward(&mut cache, &[input], &mut workspace)
            .unwrap();
    }
    assert!(workspace.logits().iter().all(|v| v.is_finite()));
}

fn load(path: &Path, precision: Precision) -> (Model, Transformer) {
    let model = Model::open(path).unwrap();
    let options = Options {
        precision,
        context: 64,
    };
    let transformer = Transformer::new(&model, options).unwrap();
    (model, transformer)
}

/// Fails if more of a file is resident than the pages of norms and a few rows.
#[track_caller]
fn released(path: &Path) {
    let left = resident_of(path);
    assert!(
        left <= MEGABYTE,
        "{left} bytes of {} are resident",
        path.display()
    );
}

/// A single test, because the memory of the whole process is measured.
#[test]
fn weights_are_resident_once_even_while_loading() {
    let dir = TempDir::new().unwrap();
    let half_billion = dir.path().join("half-billion.gguf");
    write_half_billion(&half_billion);
    let listed = pull::find("smollm2").unwrap();
    let models = pull::directory().unwrap();
    assert_eq!(
        listed.state(&models),
        State::Ready,
        "run `bessemer pull smollm2` first"
    );
    for path in [listed.path(&models), half_billion] {
        let (plain, repacked) = matrices(&Model::open(&path).unwrap());
        reset_peak();
        let before = memory::resident().unwrap();
        let (_model, fast) = load(&path, Precision::Fast);
        // Bands of a few megabytes, norms, and the ends of huge pages.
        let loaded = memory::peak().unwrap() - before;
        let slack = 12 * MEGABYTE;
        assert!(
            loaded <= repacked + slack,
            "{}: {} MiB while loading {} MiB",
            path.display(),
            loaded / MEGABYTE,
            repacked / MEGABYTE
        );
        released(&path);
        run(&fast);
        released(&path);
        drop(fast);

        reset_peak();
        let before = memory::resident().unwrap();
        let (_model, exact) = load(&path, Precision::Exact);
        run(&exact);
        let peak = memory::peak().unwrap() - before;
        // Tensors that are read in place stay resident, without another copy.
        assert!(
            resident_of(&path) >= plain,
            "{} of {plain}",
            resident_of(&path)
        );
        assert!(peak <= plain + 2 * slack, "{} MiB", peak / MEGABYTE);
    }
}
