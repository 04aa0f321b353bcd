//! A conversation as the text that a model was trained on: its chat template, rendered.

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

use crate::file::{Container, Model, read_json};
use crate::{Error, Result, Tokenizer};
use mask::Mask;

/// Steps after which a template is given up: templates come from files, and some would take for ever.
const MOST_STEPS: u64 = 10_000_000;
/// The template's name in messages.
const NAME: &str = "chat_template";

/// One turn of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Who speaks: `system`, `user` or `assistant`.
    pub role: String,
    /// What is said.
    pub content: String,
}

impl Message {
    /// A message of anyone.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self {
            role: role.into(),
            content: content.into(),
        }
    }

    /// What the model is told about itself.
    pub fn system(content: impl Into<String>) -> Self {
        Self::new("system", content)
    }

    /// What the user says.
    pub fn user(content: impl Into<String>) -> Self {
        Self::new("user", content)
    }

    /// What the model has said.
    pub fn assistant(content: impl Into<String>) -> Self {
        Self::new("assistant", content)
    }
}

/// A rendered conversation: see [`Tokenizer::encode_prompt`]. Special tokens are those that the template wrote;
/// the same characters in a message are text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prompt {
    text: String,
    /// Bytes of the text that belong to no special token, in ascending order.
    literal: Vec<Range<usize>>,
}

impl Prompt {
    /// The text. It does not say which special tokens in it are real.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether these bytes of the text may be a special token: none of them came from a message as a character
    /// that special tokens have.
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

fn wrong(error: &minijinja::Error) -> Error {
    let mut reason = error
        .detail()
        .map_or_else(|| error.kind().to_string(), str::to_owned);
    if let Some(line) = error.line() {
        reason = format!("line {line}: {reason}");
    }
    Error::Template { reason }
}

impl ChatTemplate {
    /// The template of a model, if it has one. The tokenizer is the model's.
    pub fn of(model: &Model, tokenizer: &Tokenizer) -> Result<Option<Self>> {
        let Some(template) = model.metadata().text("tokenizer.chat_template")? else {
            return Ok(None);
        };
        let (bos, eos) = match model.container() {
            Container::Safetensors => beside(model)?,
            _ => {
                let text = |id: Option<u32>| id.map(|id| tokenizer.decode(&[id], true));
                let bos = text(tokenizer.bos()).unwrap_or_default();
                (bos, text(tokenizer.eos()).unwrap_or_default())
            }
        };
        Self::new(template, &bos, &eos, tokenizer).map(Some)
    }

    /// A template, with the texts of the tokens that begin and end a text. What is special in messages is what the
    /// tokenizer says.
    pub fn new(template: &str, bos: &str, eos: &str, tokenizer: &Tokenizer) -> Result<Self> {
        let mask = Mask::new(template, tokenizer.special_texts());
        Self::at(template, bos, eos, mask, SystemTime::now)
    }

    /// A template that is told what time it is.
    fn at(
        template: &str,
        bos: &str,
        eos: &str,
        mask: Mask,
        now: fn() -> SystemTime,
    ) -> Result<Self> {
        let mut environment = Environment::new();
        // As the templates were written for.
        let mut syntax = environment.syntax().to_builder();
        let syntax = syntax.trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.map_err(|e| wrong(&e))?);
        environment.set_fuel(Some(MOST_STEPS));
        limit::install(&mut environment);
        environment.add_function("raise_exception", raise_exception);
        environment.add_function("strftime_now", move |format: &str| {
            time::format(format, now())
        });
        environment.add_filter("tojson", to_json);
        // Marks what is learnt in training, and is nothing in a conversation.
        let mut template = template.to_owned();
        for (mark, instead) in [("generation", "if true"), ("endgeneration", "endif")] {
            for (open, close) in [("{%", "%}"), ("{%-", "%}"), ("{%", "-%}"), ("{%-", "-%}")] {
                let [from, to] = [mark, instead].map(|tag| format!("{open} {tag} {close}"));
                template = template.replace(&from, &to);
            }
        }
        limit::compile(&environment, NAME, &template).map_err(|e| wrong(&e))?;
        Ok(Self {
            environment: Arc::new(environment),
            template: template.into(),
            mask: Arc::new(mask),
            bos: bos.to_owned(),
            eos: eos.to_owned(),
        })
    }

    /// A conversation as the model was trained to read it; with `add_generation_prompt`, up to where the model's
    /// answer begins. It has the special tokens that the model wants, also at its beginning: encode it with
    /// [`Tokenizer::encode_prompt`].
    pub fn render(&self, messages: &[Message], add_generation_prompt: bool) -> Result<Prompt> {
        let compiled = limit::compile(&self.environment, NAME, &self.template);
        let (instructions, blocks) = compiled.map_err(|e| wrong(&e))?;
        let texts = messages.iter().flat_map(|m| [&*m.role, &*m.content]);
        let stand_ins = self.mask.stand_ins(texts);
        let message = |m: &Message| {
            let [role, content] = [&m.role, &m.content].map(|text| stand_ins.hide(text));
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
            Ok(()) => Ok(stand_ins.reveal(&text)),
            // A template may quote a message where it refuses it.
            Err(error) => Err(match wrong(&error) {
                Error::Template { reason } => Error::Template {
                    reason: stand_ins.reveal(&reason).text,
                },
                other => other,
            }),
        }
    }
}

/// The texts of the tokens that begin and end a text, as `tokenizer_config.json` has them.
fn beside(model: &Model) -> Result<(String, String)> {
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

/// How a template refuses a conversation.
fn raise_exception(reason: String) -> Result<Value, minijinja::Error> {
    Err(minijinja::Error::new(ErrorKind::InvalidOperation, reason))
}

/// JSON as Python writes it: blanks after commas and colons, nothing escaped for HTML.
fn to_json(value: Value, options: Kwargs) -> Result<String, minijinja::Error> {
    let fail =
        |e: &dyn fmt::Display| minijinja::Error::new(ErrorKind::BadSerialization, e.to_string());
    let indent: Option<usize> = options.get("indent")?;
    // Whatever else Python's function takes changes nothing here.
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
            &mut out, Python,
        )),
    };
    written.map_err(|e| fail(&e))?;
    String::from_utf8(out).map_err(|e| fail(&e))
}

/// One line, with blanks.
struct Python;

impl serde_json::ser::Formatter for Python {
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
    use super::*;
    use crate::file::{self, GgufWriter, Metadata};
    use std::time::Duration;

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
    fn templates_find_what_they_are_written_for() {
        struct Case(&'static str, &'static str);
        let cases = [
            Case(
                "{{ bos_token }}{% for m in messages %}[{{ m['role'] }}]{{ m.content | trim }}{{ eos_token }}{% endfor %}",
                "<s>[user]hello</s>[assistant]hi</s>",
            ),
            // Lines that hold nothing but a tag are not there.
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
    fn an_answer_is_begun_only_where_it_is_asked_for() {
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
    fn what_touches_a_character_of_a_message_is_no_special_token() {
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
        // In a GGUF file, by their numbers.
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
        // Beside a safetensors file, as texts or as descriptions of tokens, whatever the tokenizer has.
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
    fn a_template_refuses_in_its_own_words() {
        let template = "\n{{ raise_exception('roles must alternate') }}";
        let error = render(template, &hello()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "chat template: line 2: roles must alternate"
        );
    }

    #[test]
    fn a_template_that_is_none_is_an_error() {
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
    fn a_template_that_asks_for_much_memory_is_given_up() {
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
        let usual = "{{ 'a\nb' | indent(2) }} {{ [1, 2, 3] | batch(2) | length }}\
                     {{ [1, 2, 3] | slice(2) | length }} {{ '%03d' | format(7) }} {{ '{:>3}'.format('x') }}";
        let rendered = render(usual, &hello()).unwrap();
        assert_eq!(rendered, "a\n  b 22 007   x");
    }

    #[test]
    fn a_template_may_ask_for_ten_thousand_and_no_more() {
        let counts = |most: usize| {
            [
                (format!("{{{{ 'a\\nb' | indent({most}) }}}}"), most + 3),
                (
                    format!("{{{{ 'a\\nb' | indent(width={most}) }}}}"),
                    most + 3,
                ),
                (format!("{{{{ '%{most}d' | format(1) }}}}"), most),
                (format!("{{{{ '{{:0{most}}}'.format(1) }}}}"), most),
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
                "chat template: line 1: 10001 is more than the 10000 that a template may ask for",
                "{template}"
            );
        }
    }

    #[test]
    fn a_template_that_takes_for_ever_is_given_up() {
        let nested = "{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) %}\
                      {% endfor %}{% endfor %}{% endfor %}";
        assert!(render(nested, &hello()).is_err());
        let recursive = "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}";
        assert!(render(recursive, &hello()).is_err());
    }
}
