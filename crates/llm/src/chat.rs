//! Chat templates: rendering a conversation into a prompt.

mod limit;
mod mask;
mod time;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::SystemTime;

use minijinja::value::{Kwargs, Value};
use minijinja::{AutoEscape, Environment, ErrorKind, context, machinery};
use serde::{Deserialize, Serialize};

use self::mask::Mask;
use crate::file::{Container, Model, read_json};
use crate::{Error, Result, Tokenizer};

/// Instruction limit of a rendering: templates come from files and may never terminate.
const MAX_STEPS: u64 = 10_000_000;
/// Name of the template in error messages.
const NAME: &str = "chat_template";

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Role of the author: `system`, `user` or `assistant`.
    pub role: String,
    /// Text of the message.
    pub content: String,
}

impl Message {
    /// Creates a message with any role.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self {
            role: role.into(),
            content: content.into(),
        }
    }

    /// Creates a system message.
    pub fn system(content: impl Into<String>) -> Self {
        Self::new("system", content)
    }

    /// Creates a user message.
    pub fn user(content: impl Into<String>) -> Self {
        Self::new("user", content)
    }

    /// Creates an assistant message.
    pub fn assistant(content: impl Into<String>) -> Self {
        Self::new("assistant", content)
    }
}

/// A rendered conversation: see [`Tokenizer::encode_prompt`]. Only special tokens written by the template count; the
/// same characters in a message are text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prompt {
    text: String,
    /// Byte ranges that came from messages and cannot be part of a special token, in ascending order.
    literal: Vec<Range<usize>>,
}

impl Prompt {
    /// The text. It does not tell which special tokens in it came from the template.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns whether this byte range may be a special token: it contains no masked character of a message.
    pub(crate) fn may_be_special(&self, bytes: Range<usize>) -> bool {
        let next = self.literal.partition_point(|l| l.end <= bytes.start);
        self.literal.get(next).is_none_or(|l| l.start >= bytes.end)
    }
}

impl fmt::Display for Prompt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A model's chat template. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ChatTemplate {
    environment: Arc<Environment<'static>>,
    template: Arc<str>,
    mask: Arc<Mask>,
    bos: String,
    eos: String,
}

fn template_error(error: &minijinja::Error) -> Error {
    let mut reason = error
        .detail()
        .map_or_else(|| error.kind().to_string(), str::to_owned);
    if let Some(line) = error.line() {
        reason = format!("line {line}: {reason}");
    }
    Error::Template { reason }
}

impl ChatTemplate {
    /// Reads the chat template of a model, if it has one. `tokenizer` is the model's.
    pub fn of(model: &Model, tokenizer: &Tokenizer) -> Result<Option<Self>> {
        let Some(template) = model.metadata().text("tokenizer.chat_template")? else {
            return Ok(None);
        };
        let (bos, eos) = match model.container() {
            Container::Safetensors => special_token_texts(model)?,
            _ => {
                let text = |id: Option<u32>| id.map(|id| tokenizer.decode(&[id], true));
                let bos = text(tokenizer.bos()).unwrap_or_default();
                (bos, text(tokenizer.eos()).unwrap_or_default())
            }
        };
        Self::new(template, &bos, &eos, tokenizer).map(Some)
    }

    /// Compiles a template, given the text of the BOS and EOS tokens. The tokenizer provides the special tokens that
    /// are masked in messages.
    pub fn new(template: &str, bos: &str, eos: &str, tokenizer: &Tokenizer) -> Result<Self> {
        let mask = Mask::new(template, tokenizer.special_texts());
        Self::at(template, bos, eos, mask, SystemTime::now)
    }

    /// Compiles a template with a given clock.
    fn at(
        template: &str,
        bos: &str,
        eos: &str,
        mask: Mask,
        now: fn() -> SystemTime,
    ) -> Result<Self> {
        let mut environment = Environment::new();
        // The whitespace settings that Hugging Face templates expect.
        let mut syntax = environment.syntax().to_builder();
        let syntax = syntax.trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.map_err(|e| template_error(&e))?);
        environment.set_fuel(Some(MAX_STEPS));
        limit::install(&mut environment);
        environment.add_function("raise_exception", raise_exception);
        environment.add_function("strftime_now", move |format: &str| {
            time::format(format, now())
        });
        environment.add_filter("tojson", to_json);
        // `{% generation %}` marks the assistant's tokens for training and has no effect on rendering.
        let mut template = template.to_owned();
        for (tag, replacement) in [("generation", "if true"), ("endgeneration", "endif")] {
            for (open, close) in [("{%", "%}"), ("{%-", "%}"), ("{%", "-%}"), ("{%-", "-%}")] {
                let [from, to] = [tag, replacement].map(|tag| format!("{open} {tag} {close}"));
                template = template.replace(&from, &to);
            }
        }
        limit::compile(&environment, NAME, &template).map_err(|e| template_error(&e))?;
        Ok(Self {
            environment: Arc::new(environment),
            template: template.into(),
            mask: Arc::new(mask),
            bos: bos.to_owned(),
            eos: eos.to_owned(),
        })
    }

    /// Renders a conversation; with `add_generation_prompt`, up to where the model's answer begins. The result
    /// contains all special tokens, including BOS: encode it with [`Tokenizer::encode_prompt`].
    pub fn render(&self, messages: &[Message], add_generation_prompt: bool) -> Result<Prompt> {
        let compiled = limit::compile(&self.environment, NAME, &self.template);
        let (instructions, blocks) = compiled.map_err(|e| template_error(&e))?;
        let texts = messages.iter().flat_map(|m| [&*m.role, &*m.content]);
        let placeholders = self.mask.placeholders(texts);
        let message = |m: &Message| {
            let [role, content] = [&m.role, &m.content].map(|text| placeholders.mask_text(text));
            Value::from_pairs([("role", role), ("content", content)])
        };
        let messages: Vec<Value> = messages.iter().map(message).collect();
        let values = context! {
            messages,
            add_generation_prompt,
            bos_token => &*self.bos,
            eos_token => &*self.eos,
        };
        let mut text = String::new();
        let rendered = machinery::eval(
            &self.environment,
            &instructions,
            values,
            &blocks,
            &mut machinery::make_string_output(&mut text),
            AutoEscape::None,
        );
        match rendered.map(drop) {
            Ok(()) => Ok(placeholders.unmask(&text)),
            // A template may quote a message in its exception.
            Err(error) => Err(match template_error(&error) {
                Error::Template { reason } => Error::Template {
                    reason: placeholders.unmask(&reason).text,
                },
                other => other,
            }),
        }
    }
}

/// Text of the BOS and EOS tokens in `tokenizer_config.json`.
fn special_token_texts(model: &Model) -> Result<(String, String)> {
    let config = model.beside("tokenizer_config.json");
    let config = config.map(|path| read_json(&path)).transpose()?.flatten();
    let token = |name: &str| {
        let token = config.as_ref()?.get(name)?;
        let text = token.as_str().or_else(|| token.get("content")?.as_str());
        text.map(str::to_owned)
    };
    let bos = token("bos_token").unwrap_or_default();
    Ok((bos, token("eos_token").unwrap_or_default()))
}

/// Lets a template reject a conversation.
fn raise_exception(reason: String) -> Result<Value, minijinja::Error> {
    Err(minijinja::Error::new(ErrorKind::InvalidOperation, reason))
}

/// JSON as Python's `json.dumps` writes it: a space after commas and colons, nothing escaped for HTML.
fn to_json(value: Value, options: Kwargs) -> Result<String, minijinja::Error> {
    let fail =
        |e: &dyn fmt::Display| minijinja::Error::new(ErrorKind::BadSerialization, e.to_string());
    let indent: Option<usize> = options.get("indent")?;
    // Python's other arguments change nothing here.
    for name in ["ensure_ascii", "separators", "sort_keys"] {
        let _: Option<Value> = options.get(name)?;
    }
    options.assert_all_used()?;
    let mut out = Vec::new();
    let written = match indent {
        Some(indent) => {
            let blanks = b" ".repeat(indent.min(16));
            let style = serde_json::ser::PrettyFormatter::with_indent(&blanks);
            value.serialize(&mut serde_json::Serializer::with_formatter(&mut out, style))
        }
        None => value.serialize(&mut serde_json::Serializer::with_formatter(
            &mut out,
            PythonFormatter,
        )),
    };
    written.map_err(|e| fail(&e))?;
    String::from_utf8(out).map_err(|e| fail(&e))
}

/// Single-line formatter with Python's spacing.
struct PythonFormatter;

impl serde_json::ser::Formatter for PythonFormatter {
    fn begin_array_value<W: ?Sized + std::io::Write>(
        &mut self,
        to: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        to.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_key<W: ?Sized + std::io::Write>(
        &mut self,
        to: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        to.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_value<W: ?Sized + std::io::Write>(
        &mut self,
        to: &mut W,
    ) -> std::io::Result<()> {
        to.write_all(b": ")
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::file::{self, GgufWriter, Metadata};

    const SPECIAL: [&str; 5] = ["<s>", "</s>", "<|im_start|>", "<|im_end|>", "[INST]"];

    fn prompt(template: &str, messages: &[Message]) -> Result<Prompt> {
        let noon = || SystemTime::UNIX_EPOCH + Duration::from_secs(1_721_995_200);
        let mask = Mask::new(template, SPECIAL.into_iter());
        ChatTemplate::at(template, "<s>", "</s>", mask, noon)?.render(messages, true)
    }

    fn render(template: &str, messages: &[Message]) -> Result<String> {
        Ok(prompt(template, messages)?.text)
    }

    fn hello() -> [Message; 2] {
        [Message::user("hello"), Message::assistant(" hi ")]
    }

    #[test]
    fn templates_use_the_jinja_features_of_hugging_face() {
        struct Case(&'static str, &'static str);
        let cases = [
            Case(
                "{{ bos_token }}{% for m in messages %}[{{ m['role'] }}]{{ m.content | trim }}{{ eos_token }}{% endfor %}",
                "<s>[user]hello</s>[assistant]hi</s>",
            ),
            // Lines that contain only a tag are removed.
            Case(
                "{% if true %}\n  {% if add_generation_prompt %}\nx\n  {% endif %}\n{% endif %}\ny",
                "x\ny",
            ),
            Case(
                "{% for m in messages %}{% if loop.index0 == 1 %}{% break %}{% endif %}{{ m.content }}{% endfor %}",
                "hello",
            ),
            Case(
                "{% for m in messages %}{% if m.role == 'user' %}{% continue %}{% endif %}{{ m.role }}{% endfor %}",
                "assistant",
            ),
            Case(
                "{{ messages[0].content.upper() }}{{ messages[1]['content'].strip() }}",
                "HELLOhi",
            ),
            Case(
                "{{ messages[0].content.split('l')[0] }}{{ messages[0].content.startswith('he') }}",
                "heTrue",
            ),
            Case(
                "{{ messages[-1].role }}{{ messages[1:] | length }}",
                "assistant1",
            ),
            Case("{{ strftime_now('%d %b %Y') }}", "26 Jul 2024"),
            Case(
                "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}",
                "2",
            ),
            Case("{% macro f(x) %}<{{ x }}>{% endmacro %}{{ f('a') }}", "<a>"),
            Case("{{ {'a': [1, 'é<']} | tojson }}", "{\"a\": [1, \"é<\"]}"),
            Case("{{ [1] | tojson(indent=2) }}", "[\n  1\n]"),
            Case(
                "{% if tools is defined and tools %}tools{% endif %}{% if not tools %}none{% endif %}",
                "none",
            ),
            Case("{%- generation -%} x {%- endgeneration -%} y", "xy"),
            Case(
                "{% for m in messages %}{% generation %}{{ m.role }}{% endgeneration %}{% endfor %}",
                "userassistant",
            ),
        ];
        for Case(template, expected) in cases {
            assert_eq!(
                render(template, &hello()).as_deref(),
                Ok(expected),
                "{template}"
            );
        }
    }

    #[test]
    fn the_generation_prompt_is_added_only_on_request() {
        let template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{{ eos_token }}{% endfor %}\
                        {% if add_generation_prompt %}<assistant>{% endif %}";
        let mask = Mask::new(template, SPECIAL.into_iter());
        let template = ChatTemplate::at(template, "<s>", "</s>", mask, SystemTime::now).unwrap();
        let [question, _] = hello();
        let asked = template.render(std::slice::from_ref(&question), true);
        assert_eq!(asked.unwrap().text(), "<user>hello</s><assistant>");
        let told = template.render(&[question], false);
        assert_eq!(told.unwrap().text(), "<user>hello</s>");
    }

    #[test]
    fn special_tokens_in_messages_are_text() {
        let prompt = Prompt {
            text: "<s><a><b>".to_owned(),
            literal: vec![3..4, 6..7],
        };
        let special = [0..3, 1..3, 4..6, 7..9, 8..9];
        assert!(special.into_iter().all(|r| prompt.may_be_special(r)));
        let text = [3..6, 2..4, 3..4, 5..7, 6..9, 0..9, 4..7];
        assert!(!text.into_iter().any(|r| prompt.may_be_special(r)));
        assert!(Prompt::default().may_be_special(0..9));
    }

    #[test]
    fn a_model_has_its_own_template_and_special_tokens() {
        let dir = tempfile::TempDir::new().unwrap();
        let template = "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}";
        let gguf = dir.path().join("m.gguf");
        let render = |path: &std::path::Path| {
            let tokenizer = Tokenizer::of(&Model::open(&gguf).unwrap()).unwrap();
            let template = ChatTemplate::of(&Model::open(path).unwrap(), &tokenizer).unwrap();
            template.map(|t| t.render(&hello(), true).unwrap().text)
        };
        // In a GGUF file, by token id.
        let mut metadata = Metadata::default();
        let text = |text: &str| file::Value::String(text.to_owned());
        let tokens = ["a", "<s>", "</s>"];
        let tokens = file::Value::Array(file::Array::String(tokens.iter().collect()));
        for (key, value) in [
            ("model", text("gpt2")),
            ("tokens", tokens),
            (
                "merges",
                file::Value::Array(file::Array::String([""; 0].iter().collect())),
            ),
            ("bos_token_id", file::Value::U32(1)),
            ("eos_token_id", file::Value::U32(2)),
        ] {
            metadata.set(&format!("tokenizer.ggml.{key}"), value);
        }
        let write = |metadata: &Metadata| {
            let writer = GgufWriter::create(&gguf, metadata, &[]).unwrap();
            writer.finish().unwrap();
        };
        write(&metadata);
        assert_eq!(render(&gguf), None);
        metadata.set("tokenizer.chat_template", text(template));
        write(&metadata);
        assert_eq!(render(&gguf).as_deref(), Some("<s>hello</s>"));
        // Beside a safetensors file, as strings or as token descriptions, regardless of the tokenizer.
        let header = r#"{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}"#;
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header.as_bytes());
        let safetensors = dir.path().join("model.safetensors");
        std::fs::write(&safetensors, bytes).unwrap();
        std::fs::write(dir.path().join("config.json"), "{}").unwrap();
        let config = format!(
            r#"{{"bos_token":"[B]","eos_token":{{"content":"[E]"}},"chat_template":"{template}"}}"#
        );
        std::fs::write(dir.path().join("tokenizer_config.json"), config).unwrap();
        assert_eq!(render(&safetensors).as_deref(), Some("[B]hello[E]"));
    }

    #[test]
    fn raise_exception_reports_the_template_message() {
        let template = "\n{{ raise_exception('roles must alternate') }}";
        let error = render(template, &hello()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "chat template: line 2: roles must alternate"
        );
    }

    #[test]
    fn an_invalid_template_is_an_error() {
        for template in [
            "{% if %}",
            "{{ x.y.z }}",
            "{{ 1 / 0 }}",
            "{% include 'other' %}",
        ] {
            let result = render(template, &hello());
            assert!(
                matches!(result, Err(Error::Template { .. })),
                "{template}: {result:?}"
            );
        }
    }

    #[test]
    fn a_template_that_allocates_too_much_is_rejected() {
        for template in [
            "{{ 'a' | indent(18446744073709551615) }}",
            "{{ 'a' | indent(width=999999999999) }}",
            "{{ messages | batch(18446744073709551615, 0) | list }}",
            "{{ messages | slice(999999999999) | list }}",
            "{{ '%999999999999d' | format(1) }}",
            "{{ '{:0999999999999}'.format(1) }}",
            "{{ '{:.999999999999f}'.format(1.5) }}",
            "{{ 'a' * 999999999999 }}",
            "{{ range(999999999999) | list }}",
        ] {
            let result = render(template, &hello());
            assert!(
                matches!(result, Err(Error::Template { .. })),
                "{template}: {result:?}"
            );
        }
        let typical = "{{ 'a\nb' | indent(2) }} {{ [1, 2, 3] | batch(2) | length }}\
                     {{ [1, 2, 3] | slice(2) | length }} {{ '%03d' | format(7) }} {{ '{:>3}'.format('x') }}";
        let rendered = render(typical, &hello()).unwrap();
        assert_eq!(rendered, "a\n  b 22 007   x");
    }

    #[test]
    fn widths_and_counts_are_limited_to_ten_thousand() {
        let counts = |limit: usize| {
            [
                (format!("{{{{ 'a\\nb' | indent({limit}) }}}}"), limit + 3),
                (
                    format!("{{{{ 'a\\nb' | indent(width={limit}) }}}}"),
                    limit + 3,
                ),
                (format!("{{{{ '%{limit}d' | format(1) }}}}"), limit),
                (format!("{{{{ '{{:0{limit}}}'.format(1) }}}}"), limit),
            ]
        };
        for (template, length) in counts(10_000) {
            let rendered = render(&template, &hello()).unwrap();
            assert_eq!(rendered.len(), length, "{template}");
        }
        for (template, _) in counts(10_001) {
            let error = render(&template, &hello()).unwrap_err();
            assert_eq!(
                error.to_string(),
                "chat template: line 1: 10001 exceeds the limit of 10000 for a width or count",
                "{template}"
            );
        }
    }

    #[test]
    fn a_template_that_never_terminates_is_rejected() {
        let nested = "{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) %}\
                      {% endfor %}{% endfor %}{% endfor %}";
        assert!(render(nested, &hello()).is_err());
        let recursive = "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}";
        assert!(render(recursive, &hello()).is_err());
    }
}
