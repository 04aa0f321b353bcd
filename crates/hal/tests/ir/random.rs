//! Random structured kernels against an interpreter that runs all threads in lockstep.

use std::fmt::Write;

use super::harness::run_all;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z >> 33) as u32 % bound
    }
}

/// Number of variables of a random kernel.
const VARIABLES: u32 = 5;
/// Length of the private array of a random kernel.
const ARRAY_LEN: u32 = 4;

#[derive(Debug)]
enum Expr {
    Lane,
    Threads,
    Constant(u32),
    /// A buffer element that is the same for all threads.
    Parameter(u32),
    Variable(u32),
    Counter(u32),
    Element(Box<Expr>),
    Binary(&'static str, Box<Expr>, Box<Expr>),
}

#[derive(Debug)]
enum Statement {
    Assign(u32, Expr),
    Store(Expr, Expr),
    If(Expr, Vec<Statement>, Vec<Statement>),
    /// Counter number, trip count, body.
    Loop(u32, Expr, Vec<Statement>),
    Break(Expr),
    Continue(Expr),
    Return(Expr),
    Sum(u32, Expr),
    Max(u32, Expr),
    Shuffle(u32, Expr, Expr),
    SimdBarrier,
    /// Variable, value, distance: every thread reads what another wrote.
    Exchange(u32, Expr, u32),
}

/// Context of a generated statement.
#[derive(Clone, Copy)]
struct Scope {
    depth: u32,
    /// Number of enclosing loops.
    loops: u32,
    /// Whether control flow is uniform.
    uniform: bool,
}

struct Generator {
    random: Random,
    counters: u32,
}

impl Generator {
    fn uniform_expr(&mut self, loops: u32) -> Expr {
        match self.random.below(4) {
            0 if loops > 0 => Expr::Counter(self.random.below(loops)),
            1 => Expr::Threads,
            2 => Expr::Parameter(self.random.below(4)),
            _ => Expr::Constant(self.random.below(9)),
        }
    }

    fn expr(&mut self, depth: u32, loops: u32) -> Expr {
        if depth == 0 {
            return match self.random.below(7) {
                0 => Expr::Lane,
                1 | 2 => self.uniform_expr(loops),
                _ => Expr::Variable(self.random.below(VARIABLES)),
            };
        }
        if self.random.below(8) == 0 {
            return Expr::Element(Box::new(self.expr(depth - 1, loops)));
        }
        let operators = ["+", "-", "*", "^", "&", ">>", "<", "=="];
        let operator = operators[self.random.below(8) as usize];
        Expr::Binary(
            operator,
            Box::new(self.expr(depth - 1, loops)),
            Box::new(self.expr(depth - 1, loops)),
        )
    }

    fn condition(&mut self, uniform: bool, loops: u32) -> Expr {
        let left = if uniform {
            self.uniform_expr(loops)
        } else {
            self.expr(1, loops)
        };
        let mask = Expr::Constant(1 + self.random.below(7));
        let masked = Expr::Binary("&", Box::new(left), Box::new(mask));
        Expr::Binary(
            "<",
            Box::new(masked),
            Box::new(Expr::Constant(1 + self.random.below(4))),
        )
    }

    fn block(&mut self, scope: Scope) -> Vec<Statement> {
        let count = 1 + self.random.below(5);
        (0..count).map(|_| self.statement(scope)).collect()
    }

    fn statement(&mut self, scope: Scope) -> Statement {
        let loops = scope.loops;
        let variable = self.random.below(VARIABLES);
        let inner = |uniform| Scope {
            depth: scope.depth.saturating_sub(1),
            uniform: scope.uniform && uniform,
            ..scope
        };
        match self.random.below(17) {
            0 | 1 => Statement::Sum(variable, self.expr(1, loops)),
            2 => Statement::Max(variable, self.expr(1, loops)),
            3 => Statement::Shuffle(variable, self.expr(1, loops), self.expr(1, loops)),
            4 => Statement::Store(self.expr(1, loops), self.expr(2, loops)),
            5..=7 if scope.uniform => {
                Statement::Exchange(variable, self.expr(1, loops), self.random.below(40))
            }
            8 | 9 if scope.depth > 0 => {
                let uniform = self.random.below(2) == 0;
                let condition = self.condition(uniform, loops);
                let yes = self.block(inner(uniform));
                let no = if self.random.below(2) == 0 {
                    self.block(inner(uniform))
                } else {
                    Vec::new()
                };
                Statement::If(condition, yes, no)
            }
            10 | 11 if scope.depth > 0 && loops < 3 => {
                let uniform = self.random.below(3) > 0;
                let trip = if uniform {
                    self.uniform_expr(loops)
                } else {
                    self.expr(1, loops)
                };
                let trip = Expr::Binary("&", Box::new(trip), Box::new(Expr::Constant(3)));
                self.counters = self.counters.max(loops + 1);
                let body = self.block(Scope {
                    loops: loops + 1,
                    ..inner(uniform)
                });
                Statement::Loop(loops, trip, body)
            }
            // A divergent exit would make the statements that follow divergent.
            12 if loops > 0 => Statement::Break(self.condition(scope.uniform, loops)),
            13 if loops > 0 => Statement::Continue(self.condition(scope.uniform, loops)),
            14 if !scope.uniform && self.random.below(4) == 0 => {
                Statement::Return(self.condition(false, loops))
            }
            15 => Statement::SimdBarrier,
            _ => Statement::Assign(variable, self.expr(2, loops)),
        }
    }
}

fn expression_text(expr: &Expr) -> String {
    match expr {
        Expr::Lane => "lane".into(),
        Expr::Threads => "n".into(),
        Expr::Constant(value) => format!("{value}u"),
        Expr::Parameter(index) => format!("p[{index}]"),
        Expr::Variable(index) => format!("v{index}"),
        Expr::Counter(index) => format!("i{index}"),
        Expr::Element(index) => format!("a[{} & 3]", expression_text(index)),
        Expr::Binary(">>", left, right) => format!(
            "({} >> ({} & 7))",
            expression_text(left),
            expression_text(right)
        ),
        Expr::Binary(operator, left, right) => {
            format!(
                "(uint)({} {operator} {})",
                expression_text(left),
                expression_text(right)
            )
        }
    }
}

fn print_statements(statements: &[Statement], out: &mut String) {
    for statement in statements {
        let _ = match statement {
            Statement::Assign(v, e) => writeln!(out, "v{v} = {};", expression_text(e)),
            Statement::Store(i, e) => writeln!(
                out,
                "a[{} & 3] = {};",
                expression_text(i),
                expression_text(e)
            ),
            Statement::If(c, yes, no) => {
                let _ = writeln!(out, "if ({}) {{", expression_text(c));
                print_statements(yes, out);
                out.push_str("} else {\n");
                print_statements(no, out);
                writeln!(out, "}}")
            }
            Statement::Loop(i, trip, body) => {
                let _ = writeln!(
                    out,
                    "for (uint i{i} = 0, e{i} = {}; i{i} < e{i}; i{i}++) {{",
                    expression_text(trip)
                );
                print_statements(body, out);
                writeln!(out, "}}")
            }
            Statement::Break(c) => writeln!(out, "if ({}) break;", expression_text(c)),
            Statement::Continue(c) => writeln!(out, "if ({}) continue;", expression_text(c)),
            Statement::Return(c) => writeln!(out, "if ({}) return;", expression_text(c)),
            Statement::Sum(v, e) => writeln!(out, "v{v} = simd_sum<uint>({});", expression_text(e)),
            Statement::Max(v, e) => writeln!(out, "v{v} = simd_max<uint>({});", expression_text(e)),
            Statement::Shuffle(v, e, l) => {
                writeln!(
                    out,
                    "v{v} = simd_pick({}, {});",
                    expression_text(e),
                    expression_text(l)
                )
            }
            Statement::SimdBarrier => writeln!(out, "sm_sync_sg(0);"),
            Statement::Exchange(v, e, by) => writeln!(
                out,
                "s[lane] = {}; barrier(); {{ uint r = s[(lane + {by}) % n]; barrier(); v{v} = r; }}",
                expression_text(e)
            ),
        };
    }
}

/// State of one thread.
#[derive(Clone)]
struct Thread {
    v: [u32; VARIABLES as usize],
    a: [u32; ARRAY_LEN as usize],
    i: [u32; 3],
    active: bool,
}

struct Interpreter<'p> {
    threads: Vec<Thread>,
    parameters: &'p [u32],
    /// Threadgroup memory.
    shared: Vec<u32>,
}

impl Interpreter<'_> {
    fn eval(&self, lane: usize, expr: &Expr) -> u32 {
        let thread = &self.threads[lane];
        match expr {
            Expr::Lane => lane as u32,
            Expr::Threads => self.threads.len() as u32,
            Expr::Constant(value) => *value,
            Expr::Parameter(index) => self.parameters[*index as usize],
            Expr::Variable(index) => thread.v[*index as usize],
            Expr::Counter(index) => thread.i[*index as usize],
            Expr::Element(index) => thread.a[(self.eval(lane, index) & 3) as usize],
            Expr::Binary(operator, left, right) => {
                let (l, r) = (self.eval(lane, left), self.eval(lane, right));
                match *operator {
                    "+" => l.wrapping_add(r),
                    "-" => l.wrapping_sub(r),
                    "*" => l.wrapping_mul(r),
                    "^" => l ^ r,
                    "&" => l & r,
                    ">>" => l >> (r & 7),
                    "<" => u32::from(l < r),
                    _ => u32::from(l == r),
                }
            }
        }
    }

    /// Returns the mask of active lanes that satisfy `condition`.
    fn satisfying(&self, condition: &Expr) -> Vec<bool> {
        let of = |lane: usize| self.threads[lane].active && self.eval(lane, condition) != 0;
        (0..self.threads.len()).map(of).collect()
    }

    fn active_mask(&self) -> Vec<bool> {
        self.threads.iter().map(|t| t.active).collect()
    }

    fn set_active_mask(&mut self, mask: &[bool]) {
        self.threads
            .iter_mut()
            .zip(mask)
            .for_each(|(t, m)| t.active = *m);
    }

    /// Runs `statements`; `exits` collects the lanes that left the loop, those that left its iteration, and those that
    /// returned.
    fn run(&mut self, statements: &[Statement], exits: &mut [Vec<bool>; 3]) {
        for statement in statements {
            match statement {
                Statement::If(condition, yes, no) => {
                    let before = self.active_mask();
                    let then = self.satisfying(condition);
                    let other: Vec<bool> =
                        before.iter().zip(&then).map(|(b, t)| *b && !t).collect();
                    self.set_active_mask(&then);
                    self.run(yes, exits);
                    let after = self.active_mask();
                    self.set_active_mask(&other);
                    self.run(no, exits);
                    let reconverged: Vec<bool> = self
                        .active_mask()
                        .iter()
                        .zip(&after)
                        .map(|(a, b)| *a || *b)
                        .collect();
                    self.set_active_mask(&reconverged);
                }
                Statement::Loop(counter, trip, body) => {
                    self.repeat(*counter as usize, trip, body, exits)
                }
                Statement::Break(c) => self.leave(c, &mut exits[0]),
                Statement::Continue(c) => self.leave(c, &mut exits[1]),
                Statement::Return(c) => self.leave(c, &mut exits[2]),
                _ => self.run_simple(statement),
            }
        }
    }

    fn leave(&mut self, condition: &Expr, out: &mut [bool]) {
        for (lane, leaves) in self.satisfying(condition).into_iter().enumerate() {
            if leaves {
                out[lane] = true;
                self.threads[lane].active = false;
            }
        }
    }

    fn repeat(
        &mut self,
        counter: usize,
        trip: &Expr,
        body: &[Statement],
        exits: &mut [Vec<bool>; 3],
    ) {
        let before = self.active_mask();
        let count = self.threads.len();
        let ends: Vec<u32> = (0..count).map(|lane| self.eval(lane, trip)).collect();
        let mut inner = [
            vec![false; count],
            vec![false; count],
            std::mem::take(&mut exits[2]),
        ];
        for (lane, active) in before.iter().enumerate() {
            if *active {
                self.threads[lane].i[counter] = 0;
            }
        }
        loop {
            for (lane, end) in ends.iter().enumerate() {
                let thread = &mut self.threads[lane];
                thread.active &= thread.i[counter] < *end;
            }
            if !self.active_mask().contains(&true) {
                break;
            }
            self.run(body, &mut inner);
            for (lane, skipped) in inner[1].iter_mut().enumerate() {
                let thread = &mut self.threads[lane];
                thread.active |= std::mem::take(skipped);
                thread.i[counter] += u32::from(thread.active);
            }
        }
        exits[2] = std::mem::take(&mut inner[2]);
        let reconverged: Vec<bool> = before
            .iter()
            .zip(&exits[2])
            .map(|(b, f)| *b && !f)
            .collect();
        self.set_active_mask(&reconverged);
    }

    fn run_simple(&mut self, statement: &Statement) {
        let count = self.threads.len();
        let active: Vec<usize> = (0..count)
            .filter(|lane| self.threads[*lane].active)
            .collect();
        let of = |this: &Self, e: &Expr| -> Vec<u32> {
            (0..count).map(|lane| this.eval(lane, e)).collect()
        };
        let (variable, result): (u32, Vec<u32>) = match statement {
            Statement::Assign(v, e) => (*v, of(self, e)),
            Statement::Store(i, e) => {
                let (at, values) = (of(self, i), of(self, e));
                active
                    .iter()
                    .for_each(|&l| self.threads[l].a[(at[l] & 3) as usize] = values[l]);
                return;
            }
            Statement::Sum(v, e) | Statement::Max(v, e) => {
                let values = of(self, e);
                let sum = matches!(statement, Statement::Sum(..));
                let reduce = |lane: usize| {
                    let peers = active
                        .iter()
                        .filter(|l| **l / 32 == lane / 32)
                        .map(|l| values[*l]);
                    if sum {
                        peers.fold(0, u32::wrapping_add)
                    } else {
                        peers.max().unwrap_or(0)
                    }
                };
                (*v, (0..count).map(reduce).collect())
            }
            Statement::Shuffle(v, e, l) => {
                let (values, from) = (of(self, e), of(self, l));
                let pick = |lane: usize| {
                    let source = lane / 32 * 32 + (from[lane] & 31) as usize;
                    if active.contains(&source) {
                        values[source]
                    } else {
                        0
                    }
                };
                (*v, (0..count).map(pick).collect())
            }
            Statement::Exchange(v, e, by) => {
                let values = of(self, e);
                active
                    .iter()
                    .for_each(|&lane| self.shared[lane] = values[lane]);
                (
                    *v,
                    (0..count)
                        .map(|lane| self.shared[(lane + *by as usize) % count])
                        .collect(),
                )
            }
            _ => return,
        };
        active
            .iter()
            .for_each(|&lane| self.threads[lane].v[variable as usize] = result[lane]);
    }
}

/// A shuffle that reads zero from inactive lanes.
const PICK: &str = "
static void op_pick(const void* const* a, void* r, uint m) {
    uint t[32]; for (uint i = 0; i < 32; i++) t[i] = m >> i & 1 ? ((const uint*)a[0])[i] : 0;
    for (uint i = 0; i < 32; i++) if (m >> i & 1) ((uint*)r)[i] = t[((const uint*)a[1])[i] & 31];
}
inline uint simd_pick(uint v, uint l) { return sm::sync_simd<uint, uint, uint>(&op_pick, v, l); }
";

fn check(seed: u64) {
    let mut generator = Generator {
        random: Random(seed),
        counters: 0,
    };
    let mut program = Vec::new();
    for _ in 0..3 {
        program.extend(generator.block(Scope {
            depth: 3,
            loops: 0,
            uniform: true,
        }));
    }
    let mut body = String::new();
    print_statements(&program, &mut body);
    let source = format!(
        "{PICK} KERNEL {{ uint* s = (uint*)g->tgmem[0]; const uint* p = BUF(uint, 0); uint n = g->nthreads, a[4];
        uint v0 = lane, v1 = lane * 7, v2 = 3, v3 = n, v4 = lane & 5; for (uint i = 0; i < 4; i++) a[i] = lane + i;
        uint* o = BUF(uint, 1) + lane * 9; for (uint i = 0; i < 9; i++) o[i] = 0xdead;
        {body}
        o[0] = v0; o[1] = v1; o[2] = v2; o[3] = v3; o[4] = v4; for (uint i = 0; i < 4; i++) o[5 + i] = a[i]; }}"
    );
    let parameters = [3, 0, 2, 1];
    let dims = [[64, 1, 1], [37, 1, 1], [8, 6, 2]][(seed % 3) as usize];
    let count = dims.iter().product::<u32>() as usize;
    let out = run_all(
        &source,
        [1, 1, 1],
        dims,
        &[parameters.to_vec(), vec![0; count * 9]],
    );
    let n = count as u32;
    let thread = |lane: u32| Thread {
        v: [lane, lane.wrapping_mul(7), 3, n, lane & 5],
        a: std::array::from_fn(|i| lane + i as u32),
        i: [0; 3],
        active: true,
    };
    let mut interpreter = Interpreter {
        threads: (0..n).map(thread).collect(),
        parameters: &parameters,
        shared: vec![0; count],
    };
    let mut exits = [vec![false; count], vec![false; count], vec![false; count]];
    interpreter.run(&program, &mut exits);
    for (lane, thread) in interpreter.threads.iter().enumerate() {
        let expected = if exits[2][lane] {
            vec![0xdead; 9]
        } else {
            [&thread.v[..], &thread.a[..]].concat()
        };
        assert_eq!(
            out[1][lane * 9..][..9],
            expected,
            "seed {seed}, lane {lane} of {dims:?}:\n{source}"
        );
    }
}

#[test]
fn random_kernels_match_the_interpreter() {
    (0..16).for_each(check);
}

#[test]
#[ignore = "200 more seeds of the test above, for work on the pass itself: takes minutes"]
fn many_random_kernels_match_the_interpreter() {
    (1000..1200).for_each(check);
}
