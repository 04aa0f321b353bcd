//! Hostile sizes in calls: contexts, numbers of sequences, windows, shapes and configs near `usize::MAX`. Each call returns
//! an error or a result; none panics or aborts.

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bessemer::CacheType;
use bessemer::quant::Precision;
use bessemer_llm::config::Config;
use bessemer_llm::file::{Format, GgufWriter, Metadata, Model, NewTensor};
use bessemer_llm::generate::{self, Session};
use bessemer_llm::memory::Estimate;
use bessemer_llm::model::Options;
use bessemer_llm::{Cache, Transformer, perplexity};
use tempfile::TempDir;

use super::sample;

const SIZES: [usize; 9] = [
    0,
    1,
    5,
    u32::MAX as usize,
    1 << 40,
    usize::MAX / 8,
    isize::MAX as usize,
    usize::MAX - 1,
    usize::MAX,
];

fn survives<R>(what: &str, size: usize, call: impl FnOnce() -> R) -> R {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| panic!("{what} panics with {size}"))
}

#[test]
fn contexts_caches_and_windows_of_any_size_are_handled() {
    let dir = TempDir::new().unwrap();
    let sample = sample::gguf();
    sample.write(dir.path());
    let model = Model::open(sample.open(dir.path())).unwrap();
    let options = |context| Options {
        precision: Precision::Exact,
        context,
    };
    let transformer = Arc::new(Transformer::new(&model, options(16)).unwrap());
    // A machine with more memory, or one that does not say how much it has, must not change the results.
    bessemer::memory::set_memory_limit(1 << 30);
    for size in SIZES {
        for kind in CacheType::ALL {
            for (sequences, positions) in [(1, size), (size, 1), (size, size)] {
                let cache = survives("a cache", size, || {
                    Cache::new(&transformer, kind, sequences, positions)
                });
                assert_eq!(cache.is_ok(), [1, 5].contains(&size), "{size}");
            }
        }
        let measured = survives("perplexity", size, || {
            let options = perplexity::Options {
                window: size,
                begin: None,
                cache: CacheType::F16,
            };
            perplexity::measure(&transformer, &[1, 2, 3, 1, 2, 3, 1], &options, |_, _| {})
        });
        assert_eq!(measured.is_ok(), size == 5, "{size}");
        let session = survives("a context", size, || {
            let transformer = Transformer::new(&model, options(size))?;
            Session::new(Arc::new(transformer), CacheType::Q8_0)
        });
        if let Ok(mut session) = session {
            let options = generate::Options {
                max_tokens: usize::MAX,
                ..generate::Options::greedy(&[])
            };
            let read = |_| ControlFlow::Continue(());
            let _ = survives("generation", size, || {
                session.generate(&[1, 2], &options, read)
            });
        }
    }
}

#[test]
fn configs_of_any_size_are_estimated_and_rejected() {
    let dir = TempDir::new().unwrap();
    let sample = sample::gguf();
    sample.write(dir.path());
    let model = Model::open(sample.open(dir.path())).unwrap();
    let config = Config::of(&model).unwrap();
    let changes: [fn(&mut Config, usize); 8] = [
        |config, n| config.width = n,
        |config, n| config.ffn = n,
        |config, n| config.heads = n,
        |config, n| config.kv_heads = n,
        |config, n| config.head_dim = n,
        |config, n| config.vocab = n,
        |config, n| config.context = n,
        |config, n| {
            (config.heads, config.kv_heads, config.head_dim) = (n, n, n);
            (config.width, config.ffn, config.vocab) = (n, n, n);
        },
    ];
    for size in SIZES {
        for (i, change) in changes.iter().enumerate() {
            let what = format!("change {i}");
            let mut config = config.clone();
            change(&mut config, size);
            survives(&what, size, || {
                for precision in [Precision::Exact, Precision::Fast] {
                    let estimate = Estimate::of(&model, &config, size, CacheType::F32, precision);
                    let _ = (
                        estimate.total(),
                        estimate.check(0),
                        estimate.check(u64::MAX),
                    );
                }
                let _ = (
                    config.weights(),
                    config.rope_table(size, size),
                    config.window(size),
                );
                let _ = config.weight(&model, "blk.0.attn_v.weight");
            });
        }
    }
}

#[test]
fn shapes_of_any_size_are_refused_by_the_writer() {
    let dir = TempDir::new().unwrap();
    for size in SIZES.into_iter().filter(|&n| n >= usize::MAX / 8) {
        for format in [Format::F32, Format::F16, Format::Q4_0] {
            for shape in [vec![size], vec![size / 32 * 32], vec![2, size / 64 * 32]] {
                let tensor = |name: &str| NewTensor {
                    name: name.to_owned(),
                    format,
                    shape: shape.clone(),
                };
                let tensors = [
                    tensor("a"),
                    tensor("b"),
                    tensor("c"),
                    tensor("d"),
                    tensor("e"),
                ];
                let path = dir.path().join("m.gguf");
                let _ = survives("a shape", size, || {
                    GgufWriter::create(&path, &Metadata::default(), &tensors).map(drop)
                });
            }
        }
    }
}
