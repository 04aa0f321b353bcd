//! Generates text with a language model: `cargo run --release -p bessemer-llm --example generate`.
#![expect(clippy::print_stdout, reason = "an example prints its results")]

use std::{error::Error, ops::ControlFlow, sync::Arc};

use bessemer::{CacheType, Device};
use bessemer_llm::generate::{Options, Session};
use bessemer_llm::{ChatTemplate, Message, Tokenizer, Transformer, file::Model, model, pull};

fn main() -> Result<(), Box<dyn Error>> {
    let file = Model::open(pull::by_name("smollm2")?)?; // or the path of a GGUF file
    let tokenizer = Tokenizer::of(&file)?;
    let transformer = Transformer::on(&Device::current()?, &file, model::Options::default())?;
    let mut session = Session::new(Arc::new(transformer), CacheType::F16)?;

    let template = ChatTemplate::of(&file, &tokenizer)?.ok_or("the model has no chat template")?;
    let prompt = template.render(&[Message::user("What is the capital of Germany?")], true)?;
    let prompt = tokenizer.encode_prompt(&prompt)?;

    let mut text = tokenizer.stream(false);
    session.generate(&prompt, &Options::greedy(tokenizer.stops()), |token| {
        print!("{}", text.push(token));
        ControlFlow::Continue(())
    })?;
    println!("{}", text.finish());
    Ok(())
}
