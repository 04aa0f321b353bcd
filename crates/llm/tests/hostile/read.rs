//! All processing of a file before the model runs. The fuzz targets do the same.

use std::path::Path;

use bessemer_llm::file::Model;
use bessemer_llm::{ChatTemplate, Config, EncodeOptions, Message, Tokenizer};

/// Reads everything about the model of a file, if possible.
pub(crate) fn read_model(path: &Path) -> Option<Model> {
    let model = Model::open(path).ok()?;
    for (_, value) in model.metadata().iter() {
        let _ = value.to_string();
    }
    for info in model.tensors() {
        let view = model.tensor(&info.name).unwrap();
        assert_eq!(Some(view.bytes().len()), info.format.bytes(&info.shape));
    }
    let config = Config::of(&model).ok()?;
    for (name, _) in config.weights() {
        config.weight(&model, &name).unwrap();
    }
    for layer in 0..config.layers {
        let _ = config.rope_table(layer, config.context);
    }
    Some(model)
}

/// Uses the tokenizer and the chat template of a model; returns whether it has a valid tokenizer.
pub(crate) fn use_words(model: &Model) -> bool {
    let tokenizer = Tokenizer::of(model);
    if let Ok(tokenizer) = &tokenizer {
        use_tokenizer(tokenizer);
        if let Ok(Some(template)) = ChatTemplate::of(model, tokenizer)
            && let Ok(prompt) = template.render(&[Message::user("hi <s>")], true)
        {
            let _ = tokenizer.encode_prompt(&prompt);
        }
    }
    tokenizer.is_ok()
}

/// Encodes and decodes some texts.
pub(crate) fn use_tokenizer(tokenizer: &Tokenizer) {
    for text in ["", "ab a\u{e9} <s>12", "<s>"] {
        let parsed = EncodeOptions {
            add_special: true,
            parse_special: true,
        };
        for options in [parsed, EncodeOptions::default()] {
            if let Ok(ids) = tokenizer.encode_with(text, options) {
                let _ = tokenizer.decode(&ids, true);
            }
        }
    }
    let _ = tokenizer.decode(&[0, 1, u32::MAX], false);
}
