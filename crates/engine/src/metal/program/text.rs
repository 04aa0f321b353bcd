//! Source text of the kernels of programs.

use std::fmt::{self, Write as _};
use std::sync::OnceLock;

use bessemer_hal::Pipeline;

use super::expression::{self, variable};
use crate::DType;
use crate::metal::kernel::msl_name;
use crate::metal::msl;
use crate::program::device_memory::Space;
use crate::program::flow::{Action, BlockId, End, Lanes};
use crate::program::known::Origin;
use crate::program::lower::KernelBody;
use crate::program::structure::{LocalJump, Statement, Test, TestKind};
use crate::program::{Address, Instruction, LaunchConfig, Program, Register};

/// The name of the kernel in every generated source.
pub(super) const ENTRY: &str = "program_kernel";

/// Position of the first length among the numbers of a launch, behind the grid's width and height and the step limit.
const FIRST_LENGTH: usize = 3;

/// A generated kernel.
#[derive(Debug)]
pub(super) struct KernelText {
    /// Its source, in which headers are included.
    pub(super) source: String,
    /// Values that a launch passes behind the lengths of the bindings.
    pub(super) values: Vec<Origin>,
    /// The kernel, once it is compiled.
    pub(super) pipeline: OnceLock<Pipeline>,
}

impl KernelText {
    /// The source with the headers.
    pub(super) fn compiled_source(&self) -> String {
        let head = "#include <metal_stdlib>\nusing namespace metal;\n#define SUFFIX\n";
        format!("{head}{}", msl::resolve_text("program", &self.source))
    }
}

/// Headers, and the prefixes of functions that are defined in them.
const HEADERS: &[(&str, &[&str])] = &[
    ("unary.metal", &["unary_"]),
    ("binary.metal", &["binary_"]),
    ("exp.h", &["unary_exp("]),
    ("log.h", &["unary_log"]),
    ("trig.h", &["unary_sin(", "unary_cos(", "unary_tan("]),
    ("hyperbolic.h", &["unary_tanh("]),
    ("activation.h", &["unary_sigmoid("]),
    ("power.h", &["binary_pow("]),
];

/// Writes the kernel of a launch with this block and shared memory.
pub(super) fn write(program: &Program, body: &KernelBody, config: &LaunchConfig) -> KernelText {
    let mut writer = Writer {
        program,
        body,
        text: String::new(),
        depth: 1,
        values: Vec::new(),
        lanes: Lanes::Free,
        shared_bytes: config.shared_memory.size_bytes,
    };
    for &(_, origin) in &body.start {
        if matches!(origin, Origin::Initial(_) | Origin::Pool(_))
            && !writer.values.contains(&origin)
        {
            writer.values.push(origin);
        }
    }
    writer.variables(config);
    writer.statements(&body.statements);
    let inner = std::mem::take(&mut writer.text);
    let mut source = String::from("#include \"program.h\"\n");
    for (header, prefixes) in HEADERS {
        if prefixes.iter().any(|prefix| inner.contains(prefix)) {
            let _ = writeln!(source, "#include \"{header}\"");
        }
    }
    let lanes = config.block_lanes();
    let _ = write!(
        source,
        "\n[[kernel, max_total_threads_per_threadgroup({lanes})]] void {ENTRY}(\n    \
         device ProgramFault* fault [[buffer(0)]],\n    constant ulong* launch [[buffer(1)]],\n"
    );
    for (i, binding) in body.bindings.iter().enumerate() {
        let access = if binding.is_written { "" } else { " const" };
        let _ = writeln!(
            source,
            "    device{access} uchar* m{i} [[buffer({})]], // {}",
            i + 2,
            Described(binding.space, binding.handle)
        );
    }
    source.push_str(
        "    uint3 group [[threadgroup_position_in_grid]],\n    uint index [[thread_index_in_threadgroup]]) {\n",
    );
    source.push_str(&inner);
    source.push_str("}\n");
    KernelText {
        source,
        values: writer.values,
        pipeline: OnceLock::new(),
    }
}

/// A library with a kernel under a name, and a comment that says what its arguments are.
pub(super) fn library(
    name: &str,
    body: &KernelBody,
    kernel: &KernelText,
    config: &LaunchConfig,
) -> String {
    let (block, shared) = (config.block, config.shared_memory.size_bytes);
    let mut text = format!(
        "// {name}: a program, compiled for blocks of {} x {} x {} lanes with {shared} bytes of shared memory.\n\
         // buffer 0: {} bytes of zeros; if a lane fails, its uints are 1, the code, the instruction and the memory, and its\n\
         //     ulongs behind them are the lane and the value.\n\
         // buffer 1: ulongs: width and height of the grid in blocks; steps after which a lane is stopped",
        block.x,
        block.y,
        block.z,
        size_of::<super::ProgramFault>(),
    );
    for i in 0..body.bindings.len() {
        let _ = write!(text, "; bytes of buffer {}", i + 2);
    }
    for value in &kernel.values {
        let _ = match value {
            Origin::Initial(register) => write!(text, "; {register}"),
            _ => write!(text, "; a handle"),
        };
    }
    text.push_str(".\n");
    for (i, binding) in body.bindings.iter().enumerate() {
        let described = Described(binding.space, binding.handle);
        let _ = writeln!(text, "// buffer {}: {described}.", i + 2);
    }
    text + &kernel.compiled_source().replacen(ENTRY, name, 1)
}

/// A binding, for readers.
struct Described(Space, Origin);

impl fmt::Display for Described {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Space::Buffer => "buffer",
            Space::Pool => "pool",
        })?;
        match self.1 {
            Origin::Constant(value) if value.bits() == 0 => f.write_str(" 0, the boundary pool"),
            Origin::Constant(value) => write!(f, " {}", value.bits()),
            Origin::Initial(register) => write!(f, " in {register}"),
            Origin::Pool(index) => write!(f, " of instruction {index}"),
            Origin::Position(register) => write!(f, " {register}"),
        }
    }
}

struct Writer<'a> {
    program: &'a Program,
    body: &'a KernelBody,
    text: String,
    depth: usize,
    values: Vec<Origin>,
    /// Lanes of the block that is written.
    lanes: Lanes,
    shared_bytes: usize,
}

/// Writes a line.
macro_rules! line {
    ($writer:expr, $($text:tt)*) => {{
        let text = format!($($text)*);
        $writer.line(&text);
    }};
}

impl Writer<'_> {
    fn line(&mut self, text: &str) {
        for _ in 0..self.depth {
            self.text.push_str("    ");
        }
        self.text.push_str(text);
        self.text.push('\n');
    }

    /// Writes lines between braces.
    fn braces(&mut self, head: &str, write: impl FnOnce(&mut Self)) {
        self.line(format!("{head} {{").trim_start());
        self.depth += 1;
        write(self);
        self.depth -= 1;
        self.line("}");
    }

    fn uses_shared(&self) -> bool {
        self.body.flow.any(&self.program.instructions, |i| {
            matches!(i, Instruction::Lds { .. } | Instruction::Sts { .. })
        })
    }

    /// Declares what the kernel works with.
    fn variables(&mut self, config: &LaunchConfig) {
        let lanes = config.block_lanes();
        self.line("const ulong block_number = (ulong(group.z) * launch[1] + group.y) * launch[0] + group.x;");
        line!(self, "const ulong lane = block_number * {lanes} + index;");
        self.line("const ulong step_limit = launch[2];");
        for i in 0..self.body.bindings.len() {
            line!(
                self,
                "const ulong m{i}_length = launch[{}];",
                FIRST_LENGTH + i
            );
        }
        for &(register, dtype) in &self.body.variables {
            let start = self.body.start.iter().find(|(r, _)| *r == register);
            let start = start.filter(|(_, origin)| origin.dtype() == dtype);
            let value = match start {
                Some((_, origin)) => self.start_value(*origin, config),
                None => format!("{}(0)", msl_name(dtype)),
            };
            line!(
                self,
                "{} {} = {value};",
                msl_name(dtype),
                variable(register, dtype)
            );
        }
        for predicate in &self.body.predicates {
            line!(self, "bool {predicate} = false;");
        }
        for selector in 0..self.body.selectors {
            line!(self, "uint selector_{selector} = 0;");
        }
        let instructions = &self.program.instructions;
        let has = |condition: fn(&Instruction) -> bool| self.body.flow.any(instructions, condition);
        let declared = [
            (
                has(|i| {
                    matches!(
                        i,
                        Instruction::PhaseGet { .. } | Instruction::PhaseAdv { .. }
                    )
                }),
                "uint phase = 0;",
            ),
            (
                has(|i| matches!(i, Instruction::Loop { .. })),
                "bool repeats = false;",
            ),
            (self.body.has_barriers, "bool alive = true;"),
            (self.body.counts_steps(), "ulong steps = 0;"),
            (self.body.has_uniform_loop(), "ulong turns = 0;"),
            (aims(&self.body.statements), "uint target = 0;"),
        ];
        for (_, text) in declared.iter().filter(|(is_used, _)| *is_used) {
            self.line(text);
        }
        if self.uses_shared() {
            let words = self.shared_bytes.div_ceil(8).max(1);
            line!(self, "threadgroup ulong shared_words[{words}];");
            self.line("threadgroup uchar* shared = (threadgroup uchar*)shared_words;");
            self.braces(
                &format!("for (uint i = index; i < {words}; i += {lanes})"),
                |w| w.line("shared_words[i] = 0;"),
            );
            self.line("threadgroup_barrier(mem_flags::mem_threadgroup);");
        }
    }

    fn start_value(&self, origin: Origin, config: &LaunchConfig) -> String {
        match origin {
            Origin::Constant(value) => expression::constant(value),
            Origin::Position(Register::LANE_IDX_X) => format!("index % {}", config.block.x),
            Origin::Position(Register::BLOCK_IDX_X) => "group.x".to_owned(),
            Origin::Position(Register::BLOCK_DIM_X) => config.block.x.to_string(),
            Origin::Position(_) => "lane".to_owned(),
            Origin::Initial(_) | Origin::Pool(_) => {
                let position = self.values.iter().position(|o| *o == origin);
                let first = FIRST_LENGTH + self.body.bindings.len();
                format!("launch[{}]", first + position.unwrap_or(0))
            }
        }
    }

    fn statements(&mut self, statements: &[Statement]) {
        for statement in statements {
            self.statement(statement);
        }
    }

    fn statement(&mut self, statement: &Statement) {
        match statement {
            Statement::Block(block) => self.block(*block),
            Statement::If {
                test,
                then,
                otherwise,
            } => {
                let test = self.test(*test);
                self.braces(&format!("if ({test})"), |w| w.statements(then));
                if !otherwise.is_empty() {
                    self.braces("else", |w| w.statements(otherwise));
                }
            }
            Statement::Loop { body, .. } => {
                self.braces("while (true)", |w| w.statements(body));
            }
            Statement::Scope { body, .. } => {
                self.line("do {");
                self.depth += 1;
                self.statements(body);
                self.depth -= 1;
                self.line("} while (false);");
            }
            Statement::End(_) => self.line("return;"),
            Statement::Break => self.line("break;"),
            Statement::Continue => self.line("continue;"),
            // Jumps are routed: a result of structuring has none.
            Statement::Jump(block) | Statement::Aim(block) => line!(self, "target = {block};"),
            Statement::Resume { here, is_partial } => {
                for (block, jump) in here {
                    self.braces(&format!("if (target == {block})"), |w| {
                        w.line("target = 0;");
                        w.line(match jump {
                            LocalJump::Break => "break;",
                            LocalJump::Continue => "continue;",
                        });
                    });
                }
                if *is_partial {
                    self.braces("if (target != 0)", |w| w.line("break;"));
                }
            }
        }
    }

    fn test(&self, test: Test) -> String {
        let text = match test.kind {
            TestKind::Alive => "alive".to_owned(),
            TestKind::Selector(selector, value) if test.is_negated => {
                return format!("selector_{selector} != {value}");
            }
            TestKind::Selector(selector, value) => {
                return format!("selector_{selector} == {value}");
            }
            TestKind::Branch(block) => match self.branch(block) {
                Some((
                    _,
                    Instruction::Bra {
                        pred: Some(pred), ..
                    },
                )) => pred.to_string(),
                _ => "repeats".to_owned(),
            },
        };
        if test.is_negated {
            format!("!{text}")
        } else {
            text
        }
    }

    /// The branch that ends a block.
    fn branch(&self, block: BlockId) -> Option<(usize, &Instruction)> {
        match self.body.flow.blocks[block].end {
            End::Branch { index, .. } => Some((index, &self.program.instructions[index])),
            _ => None,
        }
    }

    fn block(&mut self, id: BlockId) {
        let body = self.body;
        let block = &body.flow.blocks[id];
        self.lanes = block.lanes;
        if let Some(label) = &block.label {
            line!(self, "// {label}:");
        }
        for action in &block.actions {
            match action {
                Action::Run {
                    index,
                    binding,
                    is_uniform,
                } => self.instruction(*index, *binding, *is_uniform),
                Action::Select { selector, value } => {
                    line!(self, "selector_{selector} = {value};");
                }
                Action::Count { index } => self.count(*index),
                Action::Leave => self.line("alive = false;"),
            }
        }
        if let Some((index, Instruction::Loop { count, .. })) = self.branch(id) {
            let (comment, count) = (self.comment(index), variable(*count, DType::U32));
            self.line(&comment);
            line!(self, "repeats = {count} != 0;");
            line!(self, "{count} -= uint(repeats);");
        }
    }

    fn comment(&self, index: usize) -> String {
        format!("// {index}: {}", self.program.instructions[index])
    }

    /// Reports a fault at an instruction and ends the lane.
    fn fail(&mut self, code: &str, (index, binding): (usize, usize), value: &str) {
        let report = format!("report_fault(fault, {code}, {index}, {binding}, lane, {value});");
        match self.lanes {
            Lanes::Free => {
                self.line(&report);
                self.line("return;");
            }
            Lanes::Uniform | Lanes::Divergent => self.braces("if (alive)", |w| {
                w.line(&report);
                w.line("alive = false;");
            }),
        }
    }

    fn count(&mut self, index: usize) {
        match self.lanes {
            Lanes::Free => self.braces("if (steps++ == step_limit)", |w| {
                w.fail("FAULT_STEP_LIMIT", (index, 0), "step_limit");
            }),
            // All lanes count alike, and end together.
            Lanes::Uniform => self.braces("if (turns++ == step_limit)", |w| {
                w.fail("FAULT_STEP_LIMIT", (index, 0), "step_limit");
                w.line("return;");
            }),
            Lanes::Divergent => self.braces("if (alive && steps++ == step_limit)", |w| {
                w.fail("FAULT_STEP_LIMIT", (index, 0), "step_limit");
            }),
        }
    }

    fn instruction(&mut self, index: usize, binding: Option<usize>, is_uniform: bool) {
        use Instruction as I;
        let comment = self.comment(index);
        self.line(&comment);
        let instruction = &self.program.instructions[index];
        if let Some((dst, dtype, value)) = expression::result(instruction) {
            line!(self, "{} = {value};", variable(dst, dtype));
            return;
        }
        let at = (index, binding.unwrap_or(0));
        match *instruction {
            I::Ldg { dtype, address, .. }
            | I::Stg { dtype, address, .. }
            | I::Lds { dtype, address, .. }
            | I::Sts { dtype, address, .. } => {
                self.access(at, dtype, &offset(address), is_uniform);
            }
            I::PoolLoad { dtype, offset, .. } | I::PoolStore { dtype, offset, .. } => {
                self.access(at, dtype, &variable(offset, DType::U64), is_uniform);
            }
            I::Div {
                dtype,
                dst,
                src1,
                src2,
            } => {
                let divisor = variable(src2, dtype);
                let value = expression::call("truncated_div", dtype, [src1, src2]);
                let fault = Checked {
                    condition: format!("{divisor} == 0"),
                    code: "FAULT_DIVISION_BY_ZERO",
                    value: "0".to_owned(),
                };
                self.checked(at, &[fault], &variable(dst, dtype), dtype, &value);
            }
            I::SetCc {
                dtype,
                cond,
                dst,
                src1,
                src2,
            } => {
                let value = expression::comparison(cond, dtype, [src1, src2]);
                line!(self, "{dst} = {value};");
            }
            I::UnityTest { dst, .. } => {
                self.line("// The unity classes are 1 and 4.");
                line!(self, "{dst} = block_number % 96 == 1 || block_number % 96 == 4;");
            }
            I::PhaseAdv { delta } => line!(self, "phase = (phase + {delta}) % 768;"),
            I::Mirror { dst, src } => self.of_class(at, src, dst, DType::U8, "class_mirror", ""),
            I::NbrCount { dst, class } => {
                self.of_class(at, class, dst, DType::U32, "class_degree", "");
            }
            I::NbrGet { dst, class, index } => {
                let index = format!(", {index}");
                self.of_class(at, class, dst, DType::U8, "class_neighbour", &index);
            }
            I::BoundMap {
                dst,
                class,
                page,
                byte,
            } => {
                let [class, page, byte] = [class, page, byte].map(|r| variable(r, DType::U8));
                let faults = [
                    class_fault(&class),
                    Checked {
                        condition: format!("{page} >= 48"),
                        code: "FAULT_BOUNDARY",
                        value: format!("{page} * 256 + {byte}"),
                    },
                ];
                let value = format!("ulong({class} * 12288 + {page} * 256 + {byte})");
                self.checked(at, &faults, &variable(dst, DType::U64), DType::U64, &value);
            }
            I::BarSync { .. } => self.line(
                "threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);",
            ),
            I::MemFence { .. } => self.line(
                "// Nothing: lanes see each other's stores behind barriers only, which order all accesses.",
            ),
            // A `ret` without a call: others do not reach here.
            _ => self.fail("FAULT_UNDERFLOW", at, "0"),
        }
    }

    /// A function of a class.
    fn of_class(
        &mut self,
        at: (usize, usize),
        class: Register,
        dst: Register,
        dtype: DType,
        function: &str,
        arguments: &str,
    ) {
        let class = variable(class, DType::U8);
        let value = format!("{function}({class}{arguments})");
        self.checked(
            at,
            &[class_fault(&class)],
            &variable(dst, dtype),
            dtype,
            &value,
        );
    }

    /// An assignment that fails under conditions.
    fn checked(
        &mut self,
        at: (usize, usize),
        faults: &[Checked],
        dst: &str,
        dtype: DType,
        value: &str,
    ) {
        let lanes = self.lanes;
        for fault in faults {
            let otherwise = if lanes == Lanes::Free || fault.code == faults[0].code {
                ""
            } else {
                "else "
            };
            self.braces(&format!("{otherwise}if ({})", fault.condition), |w| {
                w.fail(fault.code, at, &fault.value);
                if lanes != Lanes::Free {
                    // All lanes have the same value, those that have left included.
                    line!(w, "{dst} = {}(0);", msl_name(dtype));
                }
            });
        }
        if lanes == Lanes::Free {
            line!(self, "{dst} = {value};");
        } else {
            self.braces("else", |w| line!(w, "{dst} = {value};"));
        }
    }

    /// A load or store of an element at an offset.
    fn access(&mut self, at: (usize, usize), dtype: DType, offset: &str, is_uniform: bool) {
        let is_guarded = self.lanes != Lanes::Free && !is_uniform;
        let head = if is_guarded { "if (alive)" } else { "" };
        let (index, binding) = at;
        let instruction = &self.program.instructions[index];
        let (memory, length) = match instruction {
            Instruction::Lds { .. } | Instruction::Sts { .. } => {
                ("shared".to_owned(), self.shared_bytes.to_string())
            }
            _ => (format!("m{binding}"), format!("m{binding}_length")),
        };
        let name = msl_name(dtype);
        let (effect, dst) = match *instruction {
            Instruction::Ldg { dst, .. }
            | Instruction::Lds { dst, .. }
            | Instruction::PoolLoad { dst, .. } => {
                let dst = variable(dst, dtype);
                (format!("{dst} = load<{name}>({memory}, at);"), Some(dst))
            }
            Instruction::Stg { src, .. }
            | Instruction::Sts { src, .. }
            | Instruction::PoolStore { src, .. } => {
                let src = variable(src, dtype);
                (format!("store<{name}>({memory}, at, {src});"), None)
            }
            _ => return,
        };
        let lanes = self.lanes;
        self.braces(head, |w| {
            line!(w, "const ulong at = {offset};");
            line!(
                w,
                "const uint problem = access_fault(at, {}, {length});",
                dtype.size()
            );
            w.braces("if (problem != 0)", |w| {
                w.fail("problem", at, "at");
                if let Some(dst) = dst.filter(|_| lanes != Lanes::Free) {
                    line!(w, "{dst} = {name}(0);");
                }
            });
            if lanes == Lanes::Free {
                w.line(&effect);
            } else {
                w.braces("else", |w| w.line(&effect));
            }
        });
    }
}

/// A condition under which an instruction fails.
struct Checked {
    condition: String,
    code: &'static str,
    value: String,
}

fn class_fault(class: &str) -> Checked {
    Checked {
        condition: format!("{class} >= 96"),
        code: "FAULT_CLASS",
        value: class.to_owned(),
    }
}

/// The offset of an address.
fn offset(address: Address) -> String {
    match address {
        Address::BufferOffset { offset, .. } => format!("{offset}ul"),
        Address::BufferRegister { offset, .. } => variable(offset, DType::U64),
        Address::PhiCoordinate { class, page, byte } => {
            let offset = 12_288 * u64::from(class) + 256 * u64::from(page) + u64::from(byte);
            format!("{offset}ul")
        }
        // A negative one wraps to an offset that no memory has.
        Address::RegisterIndirect { offset, .. } => {
            format!("{}ul", i64::from(offset).cast_unsigned())
        }
        Address::RegisterIndirectComputed { offset_reg, .. } => variable(offset_reg, DType::U64),
    }
}

/// Returns `true` if statements have jumps out of several constructs.
fn aims(statements: &[Statement]) -> bool {
    statements.iter().any(|statement| match statement {
        Statement::Aim(_) | Statement::Resume { .. } => true,
        Statement::If {
            then, otherwise, ..
        } => aims(then) || aims(otherwise),
        Statement::Loop { body, .. } | Statement::Scope { body, .. } => aims(body),
        _ => false,
    })
}
