//! Assembles the output module: regions, tables, constructors, and their dependencies.

use std::collections::HashSet;
use std::fmt::Write;

use super::FissionError;
use super::inline::{References, globals_in};
use super::lex::{IrTokenKind, bare, tokens};
use super::module::{Entity, Module};
use super::tsan::{self, Locations};

/// Symbols that the host looks up; all others are internal.
const EXPORTS: [&str; 3] = ["sm_arg_size", "sm_gate", "sm_rt_table"];

/// Code and metadata that the pass adds to a module.
#[derive(Debug, Default)]
pub(crate) struct ModuleAdditions {
    /// Name of the kernel function, which is dropped.
    pub(crate) kernel: String,
    pub(crate) regions: Vec<String>,
    /// Functions that perform collectives, as written (`@name`).
    pub(crate) ops: Vec<String>,
    pub(crate) metadata: String,
    pub(crate) check: bool,
}

fn is_linkage(word: &str) -> bool {
    matches!(
        word,
        "private"
            | "internal"
            | "linkonce"
            | "linkonce_odr"
            | "weak"
            | "weak_odr"
            | "external"
            | "common"
            | "available_externally"
            | "extern_weak"
            | "appending"
            | "dso_local"
            | "dso_preemptable"
            | "hidden"
            | "protected"
            | "default"
            | "dllimport"
            | "dllexport"
    )
}

/// Removes `comdat`, `!dbg` and, before `until`, linkage words.
fn strip(text: &str, line: usize, until: &str) -> Result<String, FissionError> {
    let list = tokens(text, line)?;
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    let mut linkage = true;
    let mut index = 0;
    while index < list.len() {
        let token = list[index];
        let ends = token.is_word(until) || (until == "@" && token.kind == IrTokenKind::Global);
        linkage &= !ends;
        let mut skip = 0;
        if linkage && token.kind == IrTokenKind::Word && is_linkage(token.text) {
            skip = 1;
        } else if token.is_word("comdat") {
            skip = if list.get(index + 1).is_some_and(|t| t.is_punct('(')) {
                4
            } else {
                1
            };
        } else if token.kind == IrTokenKind::Meta && token.text == "!dbg" {
            skip = 2;
        }
        if skip > 0 {
            out.push_str(&text[at..token.start]);
            // Remove the preceding comma, too.
            if (token.text == "comdat" || token.text == "!dbg") && out.trim_end().ends_with(',') {
                let cut = out.trim_end().len() - 1;
                out.truncate(cut);
            }
            let last = list[(index + skip - 1).min(list.len() - 1)];
            at = last.end();
            index += skip;
        } else {
            index += 1;
        }
    }
    out.push_str(&text[at..]);
    Ok(out)
}

/// Prints a variable with its linkage in an image.
fn global_text(global: &Entity) -> Result<String, FissionError> {
    let list = tokens(&global.text, global.line)?;
    let kind = ["global", "constant", "alias", "ifunc"];
    let kind = list
        .iter()
        .find(|t| t.kind == IrTokenKind::Word && kind.contains(&t.text))
        .map_or("global", |t| t.text);
    let before = list.iter().take_while(|t| !t.is_word(kind));
    let external = before
        .clone()
        .any(|t| t.is_word("external") || t.is_word("extern_weak"));
    let text = strip(&global.text, global.line, kind)?;
    let Some((name, rest)) = text.split_once('=') else {
        return Err(FissionError::Syntax {
            line: global.line,
            what: "a variable without a value".into(),
        });
    };
    let linkage = match (external, EXPORTS.contains(&global.name.as_str())) {
        (true, _) => "external ",
        (false, true) => "",
        (false, false) => "internal ",
    };
    Ok(format!("{}= {linkage}{}", name, rest.trim_start()))
}

/// Returns the constructors of a module in execution order.
fn constructors(module: &Module<'_>) -> Result<Vec<String>, FissionError> {
    let Some(global) = module
        .globals
        .iter()
        .find(|g| g.name == "llvm.global_ctors")
    else {
        return Ok(Vec::new());
    };
    let list = tokens(&global.text, global.line)?;
    let mut found: Vec<(u32, String)> = Vec::new();
    for (index, token) in list.iter().enumerate() {
        // `i32 65535, ptr @name`
        if token.kind == IrTokenKind::Global && index >= 3 && list[index - 1].is_word("ptr") {
            let name = bare(token.text);
            if name != "tsan.module_ctor" {
                found.push((
                    list[index - 3].text.parse().unwrap_or(65535),
                    token.text.to_owned(),
                ));
            }
        }
    }
    found.sort_by_key(|(priority, _)| *priority);
    Ok(found.into_iter().map(|(_, name)| name).collect())
}

/// Drops attributes that would restrict the optimiser: after splitting, no lane waits for another.
fn attributes_text(group: &str) -> String {
    let optnone = group.split(' ').any(|w| w == "optnone");
    let keep = |word: &&str| {
        let dropped = match *word {
            "noinline" => optnone,
            other => matches!(
                other,
                "convergent" | "noduplicate" | "optnone" | "sanitize_thread"
            ),
        };
        !dropped
    };
    let kept = group
        .split_whitespace()
        .filter(keep)
        .collect::<Vec<_>>()
        .join(" ");
    // LLVM rejects an empty group. Kernels do not throw, so `nounwind` adds nothing.
    if kept.is_empty() {
        "nounwind".to_owned()
    } else {
        kept
    }
}

/// Returns the attributes of region functions: only the kernel's target attributes.
pub(crate) fn region_attributes(
    module: &Module<'_>,
    header: &str,
    line: usize,
) -> Result<String, FissionError> {
    let mut text = String::from("nounwind");
    for group in super::module::groups_of(header, line)? {
        let Some(group) = module.group(group) else {
            continue;
        };
        let list = tokens(group, line)?;
        let mut index = 0;
        while index < list.len() {
            if list[index].kind == IrTokenKind::Text {
                let pair =
                    list.get(index + 1).is_some_and(|t| t.is_punct('=')) && index + 2 < list.len();
                let last = if pair { list[index + 2] } else { list[index] };
                let _ = write!(text, " {}", &group[list[index].start..last.end()]);
                index += if pair { 3 } else { 1 };
            } else {
                index += 1;
            }
        }
    }
    Ok(text)
}

/// Prints the metadata without debug information and without the loop hints of the first compilation.
fn metadata_text(module: &Module<'_>) -> String {
    let is_debug = |text: &str| text.trim_start_matches("distinct ").starts_with("!DI");
    let dropped: HashSet<u32> = module
        .metadata
        .iter()
        .filter(|(_, text)| is_debug(text) || text.contains("!\"llvm.loop.unroll.disable\""))
        .map(|(number, _)| *number)
        .collect();
    let mut out = String::new();
    for (number, text) in module
        .metadata
        .iter()
        .filter(|(number, _)| !dropped.contains(number))
    {
        if text.starts_with("distinct !{!") {
            let inner = text.trim_start_matches("distinct !{").trim_end_matches('}');
            let kept: Vec<&str> = inner
                .split(", ")
                .filter(|word| {
                    !word
                        .strip_prefix('!')
                        .and_then(|n| n.parse().ok())
                        .is_some_and(|n| dropped.contains(&n))
                })
                .collect();
            let _ = writeln!(out, "!{number} = distinct !{{{}}}", kept.join(", "));
        } else {
            let _ = writeln!(out, "!{number} = {text}");
        }
    }
    out
}

/// Returns whether a function replaces one of compiler-rt: a conversion between floating-point formats.
fn is_support(name: &str) -> bool {
    name.starts_with("__trunc") || name.starts_with("__extend")
}

/// Prints the whole module.
pub(crate) fn assemble(
    module: &Module<'_>,
    references: &References,
    additions: &ModuleAdditions,
    locations: &mut Locations,
) -> Result<String, FissionError> {
    let constructors = constructors(module)?;
    let mut from_kernel = Vec::new();
    for region in &additions.regions {
        for line in region.lines() {
            from_kernel.extend(globals_in(line, 0)?);
        }
    }
    let reported = references.reachable(from_kernel.iter().cloned());
    let mut roots = from_kernel;
    roots.extend(EXPORTS.iter().map(ToString::to_string));
    roots.extend(
        constructors
            .iter()
            .chain(&additions.ops)
            .map(|name| bare(name).to_owned()),
    );
    // The code generator calls these for conversions the processor lacks, without a reference in the text.
    let support: Vec<&str> = module
        .functions
        .iter()
        .map(|f| f.name.as_str())
        .filter(|name| is_support(name))
        .collect();
    roots.extend(support.iter().map(ToString::to_string));
    let needed = references.reachable(roots);

    let mut out = String::new();
    for line in module.head.iter().chain(&module.types) {
        let _ = writeln!(out, "{line}");
    }
    let mut has_table = false;
    for global in module
        .globals
        .iter()
        .filter(|g| needed.contains(&g.name) && !g.name.starts_with("llvm."))
    {
        has_table |= global.name == "sm_rt_table";
        let _ = writeln!(out, "{}", global_text(global)?);
    }
    if !has_table {
        out.push_str("@sm_rt_table = global ptr null, align 8\n");
    }
    let regions: Vec<String> = (0..additions.regions.len())
        .map(|n| format!("ptr @sm_region_{n}"))
        .collect();
    let ops: Vec<String> = additions
        .ops
        .iter()
        .map(|name| format!("ptr {name}"))
        .collect();
    let _ = writeln!(
        out,
        "@sm_regions = constant [{} x ptr] [{}], align 8",
        regions.len(),
        regions.join(", ")
    );
    let _ = writeln!(
        out,
        "@sm_ops = constant [{} x ptr] [{}], align 8",
        ops.len(),
        ops.join(", ")
    );
    if !support.is_empty() {
        let names: Vec<String> = support.iter().map(|name| format!("ptr @{name}")).collect();
        let _ = writeln!(
            out,
            "@llvm.compiler.used = appending global [{} x ptr] [{}], section \"llvm.metadata\"",
            names.len(),
            names.join(", ")
        );
    }
    for region in &additions.regions {
        out.push_str(region);
    }

    for function in module
        .functions
        .iter()
        .filter(|f| f.name != additions.kernel && needed.contains(&f.name))
    {
        let header = strip(&function.header, function.line, "@")?;
        let linkage = if EXPORTS.contains(&function.name.as_str()) {
            ""
        } else if is_support(&function.name) {
            "hidden "
        } else {
            "internal "
        };
        let rest = header.trim_start_matches("define").trim_start();
        let _ = writeln!(out, "define {linkage}{rest}");
        let reported = additions.check && reported.contains(&function.name);
        for (index, text) in function.body.iter().enumerate() {
            let line = function.line + 1 + index;
            let trimmed = text.trim_start();
            if trimmed.starts_with("#dbg_") || trimmed.contains("call void @llvm.dbg.") {
                continue;
            }
            let Some(text) = tsan::lower_line(text, line, reported, module, locations)? else {
                continue;
            };
            for text in text.lines() {
                let text = if text.contains("!dbg") {
                    strip(text, line, "@")?
                } else {
                    text.to_owned()
                };
                let _ = writeln!(out, "{text}");
            }
            if text.is_empty() {
                out.push('\n');
            }
        }
        out.push_str("}\n");
    }
    out.push_str("define void @sm_init(ptr %table) nounwind {\n  store ptr %table, ptr @sm_rt_table, align 8\n");
    for name in &constructors {
        let _ = writeln!(out, "  call void {name}()");
    }
    out.push_str("  ret void\n}\n");
    let mut needs_intrinsics = false;
    for declaration in module
        .declarations
        .iter()
        .filter(|d| needed.contains(&d.name))
    {
        if let Some(text) = tsan::definition(&declaration.name) {
            needs_intrinsics = true;
            out.push_str(&text);
        } else if !declaration.name.starts_with("__tsan_")
            && declaration.name != tsan::DEFECT_MARKER
        {
            let _ = writeln!(out, "{}", strip(&declaration.text, declaration.line, "@")?);
        }
    }
    if needs_intrinsics {
        for (name, text) in tsan::DEFINITION_INTRINSICS {
            if !module
                .declarations
                .iter()
                .any(|d| d.name == name && needed.contains(name))
            {
                let _ = writeln!(out, "{text}");
            }
        }
    }
    if additions.check {
        out.push_str(tsan::ACCESS_TEXT);
        out.push_str(&tsan::defect_text());
    }
    for (number, group) in &module.attributes {
        let _ = writeln!(
            out,
            "attributes #{number} = {{ {} }}",
            attributes_text(group)
        );
    }
    for line in module
        .named_metadata
        .iter()
        .filter(|l| !l.starts_with("!llvm.dbg.cu"))
    {
        let _ = writeln!(out, "{line}");
    }
    out.push_str(&metadata_text(module));
    out.push_str(&additions.metadata);
    Ok(out)
}
