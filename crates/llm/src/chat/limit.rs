//! Resource limits of templates. The template engine only counts instructions, but one instruction may double or copy
//! a string, nest a list until dropping it overflows the stack, or be `'' | indent(18446744073709551615)`.
//!
//! [`compile`] inserts guards into a template (see [`guard`]). They are filters that charge their cost to [`Cost`].

mod guard;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use minijinja::machinery::{CodeGenerator, Instructions, parse, parse_expr};
use minijinja::value::{DynObject, Kwargs, ObjectRepr, Rest, Value, ValueKind, ValueOrKwargs};
use minijinja::{Environment, Error, ErrorKind, State, escape_formatter};

/// Maximum width or count that a filter accepts.
const MAX_FILTER_CHARS: u64 = 10_000;
/// Maximum number of bytes of all strings in a value. A context of a million tokens needs an eighth of it.
const MAX_VALUE_BYTES: usize = 1 << 25;
/// Maximum number of values nested in a value, including itself. A conversation has five per message.
const MAX_NESTED_VALUES: usize = 200_000;
/// Maximum nesting depth of a value.
const MAX_NESTING_DEPTH: usize = 64;
/// Cost limit of a rendering: bytes of the strings it creates, and values it visits or creates. Enough to filter a
/// conversation of a thousand messages again for each message.
const MAX_RENDERED_BYTES: usize = 1 << 27;
/// Cost of a value apart from its strings, about its size in memory. With it, the limit is reached within a second.
const VALUE_BYTES: usize = 16;

/// A compiled template and its blocks.
pub(super) type Compiled<'a> = (Instructions<'a>, BTreeMap<&'a str, Instructions<'a>>);

/// Compiles a template with guards, which need the filters added by [`install`].
pub(super) fn compile<'a>(
    environment: &Environment<'_>,
    name: &'a str,
    template: &'a str,
) -> Result<Compiled<'a>, Error> {
    let parsed = parse(template, name, environment.syntax().clone())?;
    let mut generator = CodeGenerator::new(name, template);
    generator.compile_stmt(&guard::statement(&parsed));
    Ok(generator.finish())
}

/// Adds the guards, the bounded filters and Python's string methods.
pub(super) fn install(environment: &mut Environment<'_>) {
    environment.add_filter(guard::TOUCH, |state: &mut State<'_, '_>, value: Value| {
        let size = Size::of(&value)?;
        charge(state, size.values * VALUE_BYTES + own_bytes(&value))?;
        Ok::<_, Error>(value)
    });
    environment.add_filter(guard::SCAN, |state: &mut State<'_, '_>, value: Value| {
        check_length(&value)?;
        // The items of a string are its characters.
        charge(state, (1 + items(&value) + own_bytes(&value)) * VALUE_BYTES)?;
        Ok::<_, Error>(value)
    });
    environment.add_filter(guard::GLANCE, |state: &mut State<'_, '_>, value: Value| {
        check_length(&value)?;
        charge(state, VALUE_BYTES + own_bytes(&value))?;
        Ok::<_, Error>(value)
    });
    environment.add_filter(guard::KEEP, |state: &mut State<'_, '_>, value: Value| {
        let value = evaluate(value)?;
        let size = Size::of(&value)?;
        charge(state, size.values * VALUE_BYTES + size.bytes)?;
        Ok::<_, Error>(value)
    });
    environment.add_filter(guard::HOLD, hold);
    environment.add_filter(guard::GROW, |state: &mut State<'_, '_>, value: Value| {
        check_length(&value)?;
        charge(state, VALUE_BYTES + own_bytes(&value))?;
        // A sum refers to its operands, and the engine keeps it shallow. Other lazy values refer to their source: a
        // chain of those would overflow the stack.
        if is_sum(&value) {
            return Ok(value);
        }
        if value.kind() == ValueKind::Iterable {
            charge(state, items(&value) * VALUE_BYTES)?;
        }
        evaluate(value)
    });
    environment.add_filter(guard::MULTIPLY, multiply);
    environment.add_filter(guard::MEMBER, |state: &mut State<'_, '_>, value: Value| {
        // Only these are mutable or hide their contents: with them a namespace could contain itself, or an unbounded
        // chain.
        if Size::of(&value)?.is_opaque {
            return Err(invalid(
                "a namespace or a loop in a namespace is not supported",
            ));
        }
        hold(state, value)
    });
    environment.set_formatter(|out, state, value| {
        let size = Size::of(value)?;
        charge(state, size.values * VALUE_BYTES + size.bytes)?;
        escape_formatter(out, state, value)
    });
    for (unbounded, name) in [
        (UNBOUNDED_INDENT, "indent"),
        (UNBOUNDED_BATCH, "batch"),
        (UNBOUNDED_SLICE, "slice"),
        (UNBOUNDED_FORMAT, "format"),
        (UNBOUNDED_REPLACE, "replace"),
        (UNBOUNDED_JOIN, "join"),
    ] {
        environment.add_filter(name, move |state: &mut State<'_, '_>, args| {
            bounded(state, unbounded, args)
        });
    }
    environment.add_filter(UNBOUNDED_INDENT, minijinja::filters::indent);
    environment.add_filter(UNBOUNDED_BATCH, minijinja::filters::batch);
    environment.add_filter(UNBOUNDED_SLICE, minijinja::filters::slice);
    environment.add_filter(UNBOUNDED_FORMAT, minijinja::filters::format);
    environment.add_filter(UNBOUNDED_REPLACE, minijinja::filters::replace);
    environment.add_filter(UNBOUNDED_JOIN, minijinja::filters::join);
    environment.set_unknown_method_callback(|state, value, method, args| {
        match method {
            "format" => check_format(value, args)?,
            "replace" => check_replace(value, args)?,
            // The separator is the receiver.
            "join" => check_join(args.first(), Some(value))?,
            _ => {}
        }
        minijinja_contrib::pycompat::unknown_method_callback(state, value, method, args)
    });
}

// No template can name these, because they are not identifiers.
const UNBOUNDED_INDENT: &str = "unbounded indent";
const UNBOUNDED_BATCH: &str = "unbounded batch";
const UNBOUNDED_SLICE: &str = "unbounded slice";
const UNBOUNDED_FORMAT: &str = "unbounded format";
const UNBOUNDED_REPLACE: &str = "unbounded replace";
const UNBOUNDED_JOIN: &str = "unbounded join";

/// Cost of a rendering so far.
#[derive(Debug, Default)]
struct Cost(usize);

/// Charges a cost to the rendering.
fn charge(state: &mut State<'_, '_>, amount: usize) -> Result<(), Error> {
    let cost = state.get_or_insert_extension(Cost::default());
    cost.0 = cost.0.saturating_add(amount);
    match cost.0 {
        0..=MAX_RENDERED_BYTES => Ok(()),
        _ => Err(invalid(format!(
            "exceeds the memory limit of {MAX_RENDERED_BYTES} bytes for a template"
        ))),
    }
}

fn hold(state: &mut State<'_, '_>, value: Value) -> Result<Value, Error> {
    let value = evaluate(value)?;
    let size = Size::of(&value)?;
    charge(state, size.values * VALUE_BYTES + own_bytes(&value))?;
    Ok(value)
}

/// Multiplies two values if the result is within the limits.
fn multiply(state: &mut State<'_, '_>, left: Value, right: Value) -> Result<Value, Error> {
    for (side, count) in [(&left, &right), (&right, &left)] {
        if let Some(count) = count.as_usize() {
            check_bytes(own_bytes(side).saturating_mul(count))?;
            check_items(items(side).saturating_mul(count))?;
        }
    }
    let product = state.env().compile_expression("a * b")?;
    let product = product.eval(minijinja::context! { a => left, b => right });
    // The position in this expression is not one in the template.
    product.map_err(|e| Error::new(e.kind(), e.detail().unwrap_or_default().to_owned()))
}

/// Size of a value, including everything nested in it.
#[derive(Debug, Default)]
struct Size {
    values: usize,
    bytes: usize,
    /// Contains a namespace or a loop.
    is_opaque: bool,
}

impl Size {
    /// Fails if a value exceeds the limits.
    fn of(value: &Value) -> Result<Self, Error> {
        let mut size = Self::default();
        size.add(value, 0)?;
        Ok(size)
    }

    fn add(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        self.values += 1;
        self.bytes += own_bytes(value);
        check_bytes(self.bytes)?;
        if self.values > MAX_NESTED_VALUES {
            return Err(invalid(format!(
                "a value with more than {MAX_NESTED_VALUES} nested values is too large for a template"
            )));
        }
        let Some(object) = value.as_object() else {
            return Ok(());
        };
        if depth == MAX_NESTING_DEPTH {
            return Err(invalid(format!(
                "a value with more than {MAX_NESTING_DEPTH} nesting levels is too deep for a template"
            )));
        }
        let type_name = object.type_name();
        self.is_opaque |= type_name == *NAMESPACE || type_name.ends_with("::Loop");
        let is_map = object.repr() == ObjectRepr::Map;
        for item in object.try_iter().into_iter().flatten() {
            self.add(&item, depth + 1)?;
            if is_map && let Some(member) = object.get_value(&item) {
                self.add(&member, depth + 1)?;
            }
        }
        Ok(())
    }
}

static NAMESPACE: LazyLock<&str> = LazyLock::new(|| {
    let namespace = minijinja::functions::namespace(None).ok();
    type_name(namespace.as_ref()).expect("a namespace is an object")
});

/// Concatenation of two sequences.
static SUM: LazyLock<&str> = LazyLock::new(|| {
    let sum = parse_expr("[] + []").ok().and_then(|sum| sum.as_const());
    type_name(sum.as_ref()).expect("a sum of two lists is an object")
});

fn type_name(value: Option<&Value>) -> Option<&'static str> {
    value?.as_object().map(DynObject::type_name)
}

fn is_sum(value: &Value) -> bool {
    type_name(Some(value)) == Some(*SUM)
}

/// Length of a string; 0 for other values.
fn own_bytes(value: &Value) -> usize {
    value.as_bytes().map_or(0, <[u8]>::len)
}

/// Number of items of a value, if it is known without iterating.
fn items(value: &Value) -> usize {
    let length = value.as_object().and_then(|_| value.len());
    length.unwrap_or_default()
}

fn check_bytes(bytes: usize) -> Result<(), Error> {
    match bytes {
        0..=MAX_VALUE_BYTES => Ok(()),
        _ => Err(invalid(format!(
            "{bytes} bytes exceed the limit of {MAX_VALUE_BYTES} for a value in a template"
        ))),
    }
}

fn check_length(value: &Value) -> Result<(), Error> {
    check_bytes(own_bytes(value))?;
    check_items(items(value))
}

fn check_items(items: usize) -> Result<(), Error> {
    match items {
        0..=MAX_NESTED_VALUES => Ok(()),
        _ => Err(invalid(format!(
            "{items} items exceed the limit of {MAX_NESTED_VALUES} for a value in a template"
        ))),
    }
}

/// Evaluates a lazy sequence.
fn evaluate(value: Value) -> Result<Value, Error> {
    if value.kind() != ValueKind::Iterable {
        return Ok(value);
    }
    let mut items = Vec::new();
    for item in value.try_iter()? {
        items.push(item);
        check_items(items.len())?;
    }
    Ok(Value::make_object_iterable(items, |items| {
        Box::new(items.iter().cloned())
    }))
}

/// Applies a filter after checking that its result is within the limits.
fn bounded(
    state: &mut State<'_, '_>,
    filter: &str,
    args: Rest<ValueOrKwargs>,
) -> Result<Value, Error> {
    let args = args.into_values();
    let input = args.first().unwrap_or(&Value::UNDEFINED);
    let others = args.get(1..).unwrap_or_default();
    match filter {
        UNBOUNDED_FORMAT => check_format(input, others)?,
        UNBOUNDED_REPLACE => check_replace(input, others)?,
        UNBOUNDED_JOIN => check_join(Some(input), others.first())?,
        _ => {
            let mut largest = 4;
            for arg in others {
                largest = largest.max(check_count(arg)?);
                if let Ok(named) = Kwargs::try_from(arg.clone()) {
                    for name in named.args() {
                        largest = largest.max(check_count(&named.peek::<Value>(name)?)?);
                    }
                }
            }
            let lines = input.as_str().unwrap_or_default().matches('\n').count();
            check_bytes(own_bytes(input).saturating_add((lines + 1).saturating_mul(largest)))?;
        }
    }
    let result = state.apply_filter(filter, &args)?;
    // Other filters apply this one per item, so its result is charged here.
    let size = Size::of(&result)?;
    charge(state, size.values * VALUE_BYTES + size.bytes)?;
    Ok(result)
}

/// Checks a width or count.
fn check_count(value: &Value) -> Result<usize, Error> {
    match value.as_usize() {
        Some(count) if count as u64 > MAX_FILTER_CHARS => Err(count_too_large(count)),
        count => Ok(count.unwrap_or_default()),
    }
}

/// Widths and precisions are part of the format string.
fn check_format(text: &Value, args: &[Value]) -> Result<(), Error> {
    let text = text.as_str().unwrap_or_default();
    let mut bytes = text.len();
    for digits in text.split(|c: char| !c.is_ascii_digit()) {
        let digits = digits.trim_start_matches('0');
        match digits.parse::<u64>() {
            _ if digits.is_empty() => {}
            Ok(width) if width <= MAX_FILTER_CHARS => bytes += width as usize,
            _ => return Err(count_too_large(digits)),
        }
    }
    // Every placeholder may show every argument.
    let count = text.matches(['{', '%']).count();
    for arg in args {
        bytes = bytes.saturating_add(count.saturating_mul(display_len(arg)?));
    }
    check_bytes(bytes)
}

fn check_replace(text: &Value, args: &[Value]) -> Result<(), Error> {
    let text = text.as_str().unwrap_or_default();
    let [from, to, ..] = args else {
        return Ok(());
    };
    let count = match from.as_str() {
        Some(from) => text.matches(from).count(),
        None => text.len(),
    };
    check_bytes(
        text.len()
            .saturating_add(count.saturating_mul(display_len(to)?)),
    )
}

fn check_join(items: Option<&Value>, separator: Option<&Value>) -> Result<(), Error> {
    let Some(items) = items else {
        return Ok(());
    };
    let size = Size::of(items)?;
    let separator = separator.map(display_len).transpose()?.unwrap_or_default();
    check_bytes(size.values.saturating_mul(separator))
}

/// Approximate length of a value as text.
fn display_len(value: &Value) -> Result<usize, Error> {
    let size = Size::of(value)?;
    Ok(size.bytes + size.values)
}

fn count_too_large(number: impl std::fmt::Display) -> Error {
    invalid(format!(
        "{number} exceeds the limit of {MAX_FILTER_CHARS} for a width or count"
    ))
}

fn invalid(reason: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::InvalidOperation, reason)
}

#[cfg(test)]
mod tests {
    use minijinja::{AutoEscape, context, machinery};

    use super::*;

    fn environment() -> Environment<'static> {
        let mut environment = Environment::new();
        environment.set_fuel(Some(10_000_000));
        install(&mut environment);
        environment
    }

    fn values() -> Value {
        let message = |role, content| context! { role, content };
        context! { messages => [message("user", "hello"), message("assistant", " hi\nho ")] }
    }

    fn render(environment: &Environment<'_>, template: &str) -> Result<String, Error> {
        let (instructions, blocks) = compile(environment, "x", template)?;
        let mut text = String::new();
        machinery::eval(
            environment,
            &instructions,
            values(),
            &blocks,
            &mut machinery::make_string_output(&mut text),
            AutoEscape::None,
        )?;
        Ok(text)
    }

    fn refuses(template: &str, reason: &str) {
        let error = render(&environment(), template).expect_err(template);
        let detail = error.detail().unwrap_or_default();
        assert!(detail.contains(reason), "{template}: {error}");
    }

    /// The body, repeated forty times, with `ns.s` a one-character string and `ns.l` a list of one number.
    fn repeated(body: &str) -> String {
        format!(
            "{{% set ns = namespace(s='a', l=[1]) %}}{{% for i in range(40) %}}{body}{{% endfor %}}"
        )
    }

    #[test]
    fn a_string_that_grows_in_every_iteration_is_rejected() {
        for body in [
            "{% set ns.s = ns.s ~ ns.s %}",
            "{% set ns.s = ns.s + ns.s %}",
            "{% set ns.s = ns.s * 2 %}",
            "{% set ns.s %}{{ ns.s }}{{ ns.s }}{% endset %}",
            "{% set ns.s = [ns.s, ns.s] | join %}",
            "{% set ns.s = ns.s.join('abc') %}",
            "{% set ns.s = (ns.s ~ 'a').replace('a', ns.s) %}",
            "{% set ns.s = ['aa'] | map('replace', 'a', ns.s) | join %}",
            "{% set ns.s = '%s%s' | format(ns.s, ns.s) %}",
            "{% set ns.s = '{0}{0}'.format(ns.s) %}",
            "{% set ns.s = ([ns.s, ns.s]) | string %}",
            "{% macro f(x) %}{{ x }}{{ x }}{% endmacro %}{% set ns.s = f(ns.s) %}",
        ] {
            refuses(&repeated(body), "bytes");
        }
        let copies = "{% set s = 'a' * 30000000 %}{% set a = s ~ '' %}{% set b = s ~ '' %}{% set c = s ~ '' %}\
             {% set d = s ~ '' %}";
        refuses(copies, "exceeds the memory limit");
        let plain = "text ".repeat(1000);
        let loops = "{% for i in range(9999) %}{% for i in range(999) %}";
        refuses(
            &format!("{{% set x %}}{loops}{plain}{{% endfor %}}{{% endfor %}}{{% endset %}}"),
            "exceeds the memory limit",
        );
    }

    #[test]
    fn a_value_that_grows_in_every_iteration_is_rejected() {
        for (body, reason) in [
            ("{% set ns.l = ns.l + ns.l %}", "items"),
            ("{% set ns.l = ns.l * 3 %}", "items"),
            ("{% set ns.l = [ns.l, ns.l] %}", "nested values"),
            ("{% set ns.l = {'a': ns.l, 'b': ns.l} %}", "nested values"),
        ] {
            refuses(&repeated(body), reason);
        }
        for body in [
            "{% set ns.l = [ns.l] %}",
            "{% set ns.l = (ns.l,) %}",
            "{% set ns.l = {'a': ns.l} %}",
            "{% set ns.l = dict(a=ns.l) %}",
        ] {
            let twice = body.repeat(2);
            refuses(&repeated(&twice), "levels");
        }
        refuses(
            "{{ (1,) * 99999999 }}",
            "99999999 items exceed the limit of 200000",
        );
    }

    #[test]
    fn nested_values_are_charged() {
        // A list of a thousand numbers, nine thousand times: over the limit by its values alone.
        for body in [
            "{% set ns.l = big %}",
            "{% set x = big | list %}",
            "{% set x = big | reverse %}",
            "{% set x = [text] | map('list') | length %}",
        ] {
            let repeated = |count: usize| {
                format!(
                    "{{% set ns = namespace(l=0) %}}{{% set big = range(1000) | list %}}{{% set text = 'a' * 1000 %}}\
                     {{% for i in range({count}) %}}{body}{{% endfor %}}"
                )
            };
            refuses(&repeated(9000), "exceeds the memory limit");
            assert!(render(&environment(), &repeated(900)).is_ok(), "{body}");
        }
    }

    #[test]
    fn a_cyclic_value_is_rejected() {
        for template in [
            "{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}",
            "{% set ns = namespace() %}{% set ns.a = [{'b': ns}] %}{{ ns }}",
            "{% set ns = namespace() %}{% for i in range(300) %}{% for j in range(300) %}{% for x in [1, ns.a, 2] %}\
             {% if loop.index0 == 1 %}{% set ns.a = loop %}{% endif %}{% endfor %}{% endfor %}{% endfor %}",
        ] {
            refuses(template, "a namespace or a loop in a namespace");
        }
    }

    #[test]
    fn a_chain_of_lazy_sequences_does_not_overflow_the_stack() {
        for next in ["ns.l[0:]", "ns.l * 1", "ns.l + []", "ns.l | reverse"] {
            let template = format!(
                "{{% set ns = namespace(l=[1]) %}}{{% for i in range(300) %}}{{% for j in range(300) %}}\
                 {{% set ns.l = {next} %}}{{% endfor %}}{{% endfor %}}{{{{ ns.l }}}}"
            );
            assert_eq!(render(&environment(), &template).unwrap(), "[1]", "{next}");
        }
    }

    #[test]
    fn values_visited_by_one_instruction_are_charged() {
        for step in [
            "'x' in l",
            "l == m",
            "l | sort",
            "l | map('string')",
            "s | upper",
            "s.count('b')",
        ] {
            let template = format!(
                "{{% set l = range(9999) | list %}}{{% set m = range(9999) | list %}}{{% set s = 'a' * 99999 %}}\
                 {{% for i in range(9999) %}}{{% for j in range(99) %}}{{% set x = {step} %}}{{% endfor %}}{{% endfor %}}"
            );
            refuses(&template, "exceeds the memory limit");
        }
    }

    #[test]
    fn a_long_conversation_is_accepted() {
        let template = "{% set ns = namespace(l=[]) %}{% for m in many %}{% set ns.l = ns.l + [m] %}\
                        {% if many[loop.index0:] | selectattr('role', 'eq', 'user') | list | length == 0 %}x{% endif %}\
                        {{ '<|' ~ m.role + '|>' ~ m['content'] | trim }}{% endfor %}{{ ns.l | length }}";
        let environment = environment();
        let (instructions, blocks) = compile(&environment, "x", template).unwrap();
        let message = |_| context! { role => "user", content => "hello ".repeat(1000) };
        let many: Vec<Value> = (0..1000).map(message).collect();
        let mut text = String::new();
        let rendered = machinery::eval(
            &environment,
            &instructions,
            context! { many },
            &blocks,
            &mut machinery::make_string_output(&mut text),
            AutoEscape::None,
        );
        rendered.map(drop).unwrap();
        assert!(text.starts_with("<|user|>hello hello"));
        assert!(text.ends_with("hello1000"));
    }

    /// Widths are added up: their product would exceed the limit of a string.
    #[test]
    fn a_format_with_several_wide_fields_is_allowed() {
        let text = render(&environment(), "{{ '%9000s%9000s' | format('a', 'b') }}").unwrap();
        assert_eq!(text.len(), 18_000);
    }

    #[test]
    fn constant_folding_is_limited() {
        let sum = vec!["'a' * 30000000"; 100].join(" ~ ");
        refuses(&format!("{{{{ ({sum}) | length }}}}"), "bytes");
        refuses("{{ 'a' * 99999999 }}", "99999999 bytes exceed");
    }

    #[test]
    fn guards_do_not_change_the_output() {
        let environment = environment();
        for template in [
            include_str!("../../../../fuzz/corpus/template/chatml.jinja"),
            include_str!("../../../../fuzz/corpus/template/instruct.jinja"),
            "{% for m in messages if m.role != 'x' %}{{ loop.index }}{{ m.role | upper }}{% else %}none{% endfor %}",
            "{% for x in [1, [2, [3]]] recursive %}{{ loop(x) if x is iterable else x }}{% endfor %}",
            "{% macro f(a, b='c') %}[{{ caller(a) }}{{ b }}]{% endmacro %}{% call(x) f(2) %}x{{ x }}{% endcall %}",
            "{% with a = 1, b = [2] %}{{ a }}{{ b }}{% endwith %}{% set a, b = 1, 'z' %}{{ a ~ b }}",
            "{% block a %}<{{ messages[0].content | upper }}>{% endblock %}{{ self.a() }}",
            "{% filter upper | trim %} hey {% endfilter %}{% set x | upper %}a{{ 1 }}{% endset %}{{ x }}",
            "{% autoescape true %}<b>{{ '<' }}{{ '<' | safe }}{% endautoescape %}",
            "{{ [1, 2, 3][::-1] }}{{ 'abc'[1:] }}{{ messages[:1] }}{{ range(3) }}{{ (1, 2) }}{{ {'a': 1}.a }}",
            "{{ messages[:1] is sequence }}{{ [1] + [2] }}{{ [1] * 3 }}{{ 3 * 'ab' }}{{ 3 * 4.5 }}{{ 2 ** 3 - -1 }}",
            "{{ x is defined }}{{ x }}{{ 1 if x }}{{ x | default('d') }}{{ not x }}{{ 1 < 2 < 3 }}{{ 1 in [1] }}",
            "{{ messages | map(attribute='role') | join(', ') }}{{ messages | selectattr('role', 'eq', 'user') | list }}",
            "{{ messages[1].content.strip().split('\\n') }}{{ messages[0].items() | list }}{{ '%s-%d' | format('a', 7) }}",
            "{% include 'none' ignore missing %}{% do namespace() %}{{ dict(a=1, **{'b': 2}) }}{{ [*[1, 2], 3] }}",
            "{{ 1 + 'a' }}",
            "{{ [] * 'a' }}",
            "\n{{ x.y.z }}",
            "{% for m in messages %}{{ loop.previtem }}{{ loop.nextitem.role }}{{ loop.cycle('a', 'b') }}{% endfor %}",
        ] {
            let same = |r: Result<String, Error>| r.map_err(|e| (e.to_string(), e.line()));
            let plain = environment.render_named_str("x", template, values());
            assert_eq!(
                same(render(&environment, template)),
                same(plain),
                "{template}"
            );
        }
    }
}
