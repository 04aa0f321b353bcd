//! Decoding allocates no memory.
#![expect(unsafe_code, reason = "an allocator that counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use bessemer::CacheType;
use bessemer::quant::Precision;
use bessemer_llm::file::Model;
use bessemer_llm::model::{Input, Logits, Options, Workspace};
use bessemer_llm::pull::{self, State};
use bessemer_llm::{Cache, Sampler, Sampling, Transformer};

struct Counting;

static COUNT: AtomicUsize = AtomicUsize::new(0);

// SAFETY: all calls are forwarded to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn decoding_allocates_no_memory() {
    let listed = pull::find("smollm2").unwrap();
    let models = pull::directory().unwrap();
    assert_eq!(
        listed.state(&models),
        State::Ready,
        "run `bessemer pull smollm2` first"
    );
    let file = Model::open(listed.path(&models)).unwrap();
    for precision in [Precision::Fast, Precision::Exact] {
        for kind in CacheType::ALL {
            let options = Options {
                precision,
                context: 64,
            };
            let transformer = Transformer::new(&file, options).unwrap();
            let mut cache = Cache::new(&transformer, kind, 1, 64).unwrap();
            let mut workspace = Workspace::default();
            let mut sampler = Sampler::new(Sampling::default()).unwrap();
            let mut tokens = vec![6403, 1980, 253, 655];
            let mut before = 0;
            for step in 0..12 {
                // The first tokens grow the buffers of every thread.
                if step == 4 {
                    before = COUNT.load(Ordering::Relaxed);
                }
                let input = Input {
                    sequence: 0,
                    tokens: &tokens,
                    logits: Logits::Last,
                };
                transformer
                    .forward(&mut cache, &[input], &mut workspace)
                    .unwrap();
                let next = sampler.next(workspace.logits_mut(), &[]).expect("logits");
                tokens.clear();
                tokens.push(next);
            }
            let asked = COUNT.load(Ordering::Relaxed) - before;
            assert_eq!(asked, 0, "{precision:?} {kind:?}");
        }
    }
}
