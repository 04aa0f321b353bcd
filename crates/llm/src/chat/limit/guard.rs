//! Inserts guards into a template: filters that charge every value that is read or created.
//!
//! The template engine has no hook for operators, literals, slices and plain text, so the parsed template is copied
//! with guards inserted. They also prevent constant folding, which has no limits.

use minijinja::machinery::ast::{self, CallArg, Expr, Spanned, Stmt};
use minijinja::value::Value;

/// Reads a value and everything nested in it.
pub(super) const TOUCH: &str = "#touch";
/// Reads a value and iterates over its items.
pub(super) const SCAN: &str = "#scan";
/// Reads a value without iterating over its items.
pub(super) const GLANCE: &str = "#glance";
/// Creates a value including all strings in it.
pub(super) const KEEP: &str = "#keep";
/// Creates a value from existing values.
pub(super) const HOLD: &str = "#hold";
/// Creates a string, or a sequence of existing items.
pub(super) const GROW: &str = "#grow";
/// Multiplies two values.
pub(super) const MULTIPLY: &str = "#multiply";
/// Assigns a value to a member of a namespace.
pub(super) const MEMBER: &str = "#member";

/// Filters that read at most one item and create nothing.
const LIGHT: [&str; 7] = ["length", "count", "first", "last", "default", "d", "attr"];
/// Filters that iterate over items and return some of them.
const SELECTING: [&str; 6] = [
    "list",
    "reverse",
    "select",
    "reject",
    "selectattr",
    "rejectattr",
];
/// Filters that read items in depth and return no new strings.
const REORDERING: [&str; 9] = [
    "sort", "unique", "batch", "slice", "items", "dictsort", "groupby", "min", "max",
];

/// Copies a statement with guards.
pub(super) fn statement<'a>(stmt: &Stmt<'a>) -> Stmt<'a> {
    fn spanned<T, U>(node: &Spanned<T>, copy: impl FnOnce(&T) -> U) -> Spanned<U> {
        Spanned::new(copy(node), node.span())
    }
    match stmt {
        Stmt::Template(node) => Stmt::Template(spanned(node, |t| ast::Template {
            children: statements(&t.children),
        })),
        // The formatter charges what is written, so text of the template becomes a value.
        Stmt::EmitExpr(node) => Stmt::EmitExpr(spanned(node, |e| ast::EmitExpr {
            expr: unguarded(&e.expr),
        })),
        Stmt::EmitRaw(node) => Stmt::EmitExpr(spanned(node, |e| ast::EmitExpr {
            expr: Expr::Const(Spanned::new(
                ast::Const {
                    value: Value::from_safe_string(e.raw.to_owned()),
                },
                node.span(),
            )),
        })),
        Stmt::ForLoop(node) => Stmt::ForLoop(spanned(node, |f| ast::ForLoop {
            target: target(&f.target),
            iter: guard(GLANCE, expression(&f.iter)),
            filter_expr: f.filter_expr.as_ref().map(expression),
            recursive: f.recursive,
            body: statements(&f.body),
            else_body: statements(&f.else_body),
        })),
        Stmt::IfCond(node) => Stmt::IfCond(spanned(node, |i| ast::IfCond {
            expr: expression(&i.expr),
            true_body: statements(&i.true_body),
            false_body: statements(&i.false_body),
        })),
        Stmt::WithBlock(node) => Stmt::WithBlock(spanned(node, |w| ast::WithBlock {
            assignments: w
                .assignments
                .iter()
                .map(|(to, value)| (target(to), expression(value)))
                .collect(),
            body: statements(&w.body),
        })),
        Stmt::Set(node) => Stmt::Set(spanned(node, |s| {
            let value = expression(&s.expr);
            ast::Set {
                target: target(&s.target),
                expr: if has_member(&s.target) {
                    wrap(MEMBER, value)
                } else {
                    value
                },
            }
        })),
        Stmt::SetBlock(node) => Stmt::SetBlock(spanned(node, |s| ast::SetBlock {
            target: target(&s.target),
            filter: s.filter.as_ref().map(expression),
            body: statements(&s.body),
        })),
        Stmt::AutoEscape(node) => Stmt::AutoEscape(spanned(node, |a| ast::AutoEscape {
            enabled: expression(&a.enabled),
            body: statements(&a.body),
        })),
        Stmt::FilterBlock(node) => Stmt::FilterBlock(spanned(node, |f| ast::FilterBlock {
            filter: expression(&f.filter),
            body: statements(&f.body),
        })),
        Stmt::Block(node) => Stmt::Block(spanned(node, |b| ast::Block {
            name: b.name,
            required: b.required,
            body: statements(&b.body),
        })),
        Stmt::Import(node) => Stmt::Import(spanned(node, |i| ast::Import {
            expr: expression(&i.expr),
            name: target(&i.name),
        })),
        Stmt::FromImport(node) => Stmt::FromImport(spanned(node, |i| ast::FromImport {
            expr: expression(&i.expr),
            names: i
                .names
                .iter()
                .map(|(name, alias)| (target(name), alias.as_ref().map(target)))
                .collect(),
        })),
        Stmt::Extends(node) => Stmt::Extends(spanned(node, |e| ast::Extends {
            name: expression(&e.name),
        })),
        Stmt::Include(node) => Stmt::Include(spanned(node, |i| ast::Include {
            name: expression(&i.name),
            ignore_missing: i.ignore_missing,
        })),
        Stmt::Macro(node) => Stmt::Macro(spanned(node, macro_)),
        Stmt::CallBlock(node) => Stmt::CallBlock(spanned(node, |c| ast::CallBlock {
            call: spanned(&c.call, call),
            macro_decl: spanned(&c.macro_decl, macro_),
        })),
        Stmt::Continue(node) => Stmt::Continue(spanned(node, |_| ast::Continue)),
        Stmt::Break(node) => Stmt::Break(spanned(node, |_| ast::Break)),
        Stmt::Do(node) => Stmt::Do(spanned(node, |d| ast::Do {
            call: spanned(&d.call, call),
        })),
    }
}

fn statements<'a>(stmts: &[Stmt<'a>]) -> Vec<Stmt<'a>> {
    stmts.iter().map(statement).collect()
}

fn macro_<'a>(node: &ast::Macro<'a>) -> ast::Macro<'a> {
    ast::Macro {
        name: node.name,
        args: node.args.iter().map(target).collect(),
        defaults: node.defaults.iter().map(expression).collect(),
        body: statements(&node.body),
    }
}

fn call<'a>(node: &ast::Call<'a>) -> ast::Call<'a> {
    let callee = match &node.expr {
        // The name of the callee, and `self` before it, are not values.
        Expr::Var(_) => target(&node.expr),
        Expr::GetAttr(attr) => {
            let of_template = matches!(&attr.expr, Expr::Var(var) if var.id == "self");
            let receiver = if of_template {
                target(&attr.expr)
            } else {
                guard(GLANCE, expression(&attr.expr))
            };
            let name = attr.name;
            let copy = ast::GetAttr {
                expr: receiver,
                name,
            };
            Expr::GetAttr(Spanned::new(copy, attr.span()))
        }
        other => expression(other),
    };
    ast::Call {
        expr: callee,
        args: arguments(&node.args),
    }
}

fn arguments<'a>(args: &[CallArg<'a>]) -> Vec<CallArg<'a>> {
    let touched = |expr| guard(TOUCH, expression(expr));
    args.iter()
        .map(|arg| match arg {
            CallArg::Pos(expr) => CallArg::Pos(touched(expr)),
            CallArg::Kwarg(name, expr) => CallArg::Kwarg(name, touched(expr)),
            CallArg::PosSplat(expr) => CallArg::PosSplat(touched(expr)),
            CallArg::KwargSplat(expr) => CallArg::KwargSplat(touched(expr)),
        })
        .collect()
}

/// Copies an assignment target.
fn target<'a>(expr: &Expr<'a>) -> Expr<'a> {
    let targets = |items: &[Expr<'a>]| items.iter().map(target).collect();
    match expr {
        Expr::Var(node) => Expr::Var(Spanned::new(ast::Var { id: node.id }, node.span())),
        Expr::List(node) => {
            let items = targets(&node.items);
            Expr::List(Spanned::new(ast::List { items }, node.span()))
        }
        Expr::Tuple(node) => {
            let items = targets(&node.items);
            Expr::Tuple(Spanned::new(ast::Tuple { items }, node.span()))
        }
        other => unguarded(other),
    }
}

/// Returns whether the target is a member of a namespace.
fn has_member(target: &Expr<'_>) -> bool {
    match target {
        Expr::Var(_) => false,
        Expr::List(node) => node.items.iter().any(has_member),
        Expr::Tuple(node) => node.items.iter().any(has_member),
        _ => true,
    }
}

/// Copies an expression with guards.
fn expression<'a>(expr: &Expr<'a>) -> Expr<'a> {
    let filter = match expr {
        Expr::Slice(_) => GROW,
        Expr::BinOp(node) if grows(node.op) => GROW,
        Expr::Filter(node) if LIGHT.contains(&node.name) => GLANCE,
        Expr::Filter(node) if SELECTING.contains(&node.name) => GROW,
        Expr::Filter(node) if REORDERING.contains(&node.name) => HOLD,
        Expr::Filter(_) | Expr::Call(_) => KEEP,
        Expr::List(_) | Expr::Tuple(_) | Expr::Map(_) => HOLD,
        _ => return unguarded(expr),
    };
    wrap(filter, unguarded(expr))
}

fn grows(op: ast::BinOpKind) -> bool {
    use ast::BinOpKind::{Add, Concat, Mul};
    matches!(op, Add | Mul | Concat)
}

/// Copies an expression with guards on its operands but not on itself.
fn unguarded<'a>(expr: &Expr<'a>) -> Expr<'a> {
    let span = expr.span();
    let list = |items: &[Expr<'a>]| items.iter().map(expression).collect();
    let part = |part: &Option<Expr<'a>>| part.as_ref().map(expression);
    match expr {
        Expr::Var(node) => Expr::Var(Spanned::new(ast::Var { id: node.id }, span)),
        Expr::Const(node) => {
            let value = node.value.clone();
            Expr::Const(Spanned::new(ast::Const { value }, span))
        }
        Expr::Slice(node) => {
            let copy = ast::Slice {
                expr: guard(GLANCE, expression(&node.expr)),
                start: part(&node.start),
                stop: part(&node.stop),
                step: part(&node.step),
            };
            Expr::Slice(Spanned::new(copy, span))
        }
        Expr::UnaryOp(node) => {
            let copy = ast::UnaryOp {
                op: match node.op {
                    ast::UnaryOpKind::Not => ast::UnaryOpKind::Not,
                    ast::UnaryOpKind::Neg => ast::UnaryOpKind::Neg,
                },
                expr: expression(&node.expr),
            };
            Expr::UnaryOp(Spanned::new(copy, span))
        }
        Expr::BinOp(node) => {
            use ast::BinOpKind::{Add, Concat, Mul, ScAnd, ScOr};
            let [left, right] = [&node.left, &node.right].map(expression);
            let [left, right] = match node.op {
                ScAnd | ScOr => [left, right],
                // The only operator whose result may be much larger than its operands; the size is checked before.
                Mul => {
                    let copy = ast::Filter {
                        name: MULTIPLY,
                        expr: Some(left),
                        args: vec![CallArg::Pos(right)],
                    };
                    return Expr::Filter(Spanned::new(copy, span));
                }
                // Constants too, or the compiler would fold the expression.
                Add => [left, right].map(|side| wrap(GLANCE, side)),
                Concat => [left, right].map(|side| wrap(TOUCH, side)),
                _ => [left, right].map(|side| guard(TOUCH, side)),
            };
            let op = node.op;
            Expr::BinOp(Spanned::new(ast::BinOp { op, left, right }, span))
        }
        Expr::Compare(node) => {
            let operand = |op: &ast::CompareOp<'a>| ast::CompareOp {
                op: op.op,
                expr: guard(TOUCH, expression(&op.expr)),
            };
            let copy = ast::Compare {
                expr: guard(TOUCH, expression(&node.expr)),
                ops: node.ops.iter().map(operand).collect(),
            };
            Expr::Compare(Spanned::new(copy, span))
        }
        Expr::IfExpr(node) => {
            let copy = ast::IfExpr {
                test_expr: expression(&node.test_expr),
                true_expr: expression(&node.true_expr),
                false_expr: part(&node.false_expr),
            };
            Expr::IfExpr(Spanned::new(copy, span))
        }
        Expr::Filter(node) => {
            let input = node.expr.as_ref().map(|input| {
                let input = expression(input);
                match node.name {
                    name if LIGHT.contains(&name) => input,
                    name if SELECTING.contains(&name) => wrap(SCAN, input),
                    _ => guard(TOUCH, input),
                }
            });
            let copy = ast::Filter {
                name: node.name,
                expr: input,
                args: arguments(&node.args),
            };
            Expr::Filter(Spanned::new(copy, span))
        }
        Expr::Test(node) => {
            let copy = ast::Test {
                name: node.name,
                expr: expression(&node.expr),
                args: arguments(&node.args),
            };
            Expr::Test(Spanned::new(copy, span))
        }
        Expr::GetAttr(node) => {
            let copy = ast::GetAttr {
                expr: expression(&node.expr),
                name: node.name,
            };
            Expr::GetAttr(Spanned::new(copy, span))
        }
        Expr::GetItem(node) => {
            let copy = ast::GetItem {
                expr: guard(GLANCE, expression(&node.expr)),
                subscript_expr: guard(TOUCH, expression(&node.subscript_expr)),
            };
            Expr::GetItem(Spanned::new(copy, span))
        }
        Expr::Call(node) => Expr::Call(Spanned::new(call(node), span)),
        Expr::List(node) => {
            let items = list(&node.items);
            Expr::List(Spanned::new(ast::List { items }, span))
        }
        Expr::Tuple(node) => {
            let items = list(&node.items);
            Expr::Tuple(Spanned::new(ast::Tuple { items }, span))
        }
        Expr::Map(node) => {
            let copy = ast::Map {
                keys: list(&node.keys),
                values: list(&node.values),
            };
            Expr::Map(Spanned::new(copy, span))
        }
    }
}

/// Guards an expression that is not guarded yet. A constant is no longer than the template.
fn guard<'a>(filter: &'static str, expr: Expr<'a>) -> Expr<'a> {
    match &expr {
        Expr::Const(_) => expr,
        Expr::Filter(node) if [KEEP, HOLD].contains(&node.name) => expr,
        _ => wrap(filter, expr),
    }
}

fn wrap<'a>(filter: &'static str, expr: Expr<'a>) -> Expr<'a> {
    let span = expr.span();
    let node = ast::Filter {
        name: filter,
        expr: Some(expr),
        args: Vec::new(),
    };
    Expr::Filter(Spanned::new(node, span))
}
