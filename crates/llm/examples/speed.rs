//! How fast a model is on this machine: `speed MODEL [PROMPT_TOKENS] [TOKENS]`.

use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

use bessemer::CacheType;
use bessemer::quant::Precision;
use bessemer_llm::file::Model;
use bessemer_llm::generate::{Options, Session};
use bessemer_llm::{Sampling, Transformer, model};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let path = args
        .next()
        .ok_or("usage: speed MODEL [PROMPT_TOKENS] [TOKENS]")?;
    let prompt: u32 = args.next().map_or(Ok(256), |n| n.parse())?;
    let tokens = args.next().map_or(Ok(64), |n| n.parse())?;
    let exact = std::env::var_os("EXACT").is_some();
    let file = Model::open(&path)?;
    let start = Instant::now();
    let options = model::Options {
        precision: if exact {
            Precision::Exact
        } else {
            Precision::Fast
        },
        context: prompt as usize + tokens,
    };
    let transformer = Arc::new(Transformer::new(&file, options)?);
    let loaded = start.elapsed();
    let vocab = u32::try_from(transformer.config().vocab)?;
    let ids: Vec<u32> = (0..prompt).map(|i| 100 + i * 7 % (vocab - 100)).collect();
    let options = Options {
        sampling: Sampling::default(),
        max_tokens: tokens,
        stops: vec![],
    };
    for _ in 0..3 {
        let mut session = Session::new(Arc::clone(&transformer), CacheType::F16)?;
        let report = session.generate(&ids, &options, |_| std::ops::ControlFlow::Continue(()))?;
        #[expect(clippy::print_stdout, reason = "an example")]
        {
            println!(
                "loaded in {loaded:.2?}, prefill {:.1} tok/s, decode {:.1} tok/s",
                report.prefill_speed(),
                report.decode_speed()
            );
        }
    }
    Ok(())
}
