//! The calls: elementwise functions from the engine's tables, and a row for each other op.

use bessemer::{AttentionOptions, RopeOptions, RopeScaling, RopeStyle, Tensor};

use super::constrained::{
    conv1d, conv2d, index_along, pool, scatter, shaped_attention, slice_update, take_at,
};
use super::{Args, Call};

fn call_unary(f: impl Fn(&Tensor) -> Tensor, a: &mut Args<'_>) -> Vec<Tensor> {
    vec![f(&a.tensor())]
}

fn call_binary(f: impl Fn(&Tensor, &Tensor) -> Tensor, a: &mut Args<'_>) -> Vec<Tensor> {
    let x = a.tensor();
    let y = a.same_shape(&x);
    vec![f(&x, &y)]
}

fn call_ternary(f: impl Fn(&Tensor, &Tensor, &Tensor) -> Tensor, a: &mut Args<'_>) -> Vec<Tensor> {
    let x = a.tensor();
    let (y, z) = (a.same_shape(&x), a.same_shape(&x));
    vec![f(&x, &y, &z)]
}

fn reduce(f: impl Fn(&Tensor, &[isize], bool) -> Tensor, a: &mut Args<'_>) -> Vec<Tensor> {
    let (axes, keepdims) = (a.axes(), a.boolean());
    call_unary(|x| f(x, &axes, keepdims), a)
}

fn along(f: impl Fn(&Tensor, isize) -> Tensor, a: &mut Args<'_>) -> Vec<Tensor> {
    let n = a.axis();
    call_unary(|x| f(x, n), a)
}

macro_rules! unary {
    ($(
        $(#[$doc:meta])*
        $variant:ident $name:ident $(($parameter:ident = $sample:literal))? $result:ident $file:ident
        $($bound:ident($($number:literal),+))*;
    )*) => {
        &[$((stringify!($name), |a| {
            $(let $parameter = a.float();)?
            call_unary(|x| x.$name($($parameter)?), a)
        })),*]
    };
}

macro_rules! binary {
    ($(
        $(#[$doc:meta])*
        $variant:ident $name:ident $types:ident $file:ident $($bound:ident($($number:literal),+))*;
    )*) => {
        &[$((stringify!($name), |a| call_binary(|x, y| x.$name(y), a))),*]
    };
}

macro_rules! ternary {
    ($(
        $(#[$doc:meta])*
        $variant:ident $name:ident($b:ident, $c:ident) $types:ident $file:ident
        $($bound:ident($($number:literal),+))*;
    )*) => {
        &[$((stringify!($name), |a| call_ternary(|x, y, z| x.$name(y, z), a))),*]
    };
}

/// Every op by name.
pub fn calls() -> impl Iterator<Item = (&'static str, Call)> + Clone {
    let tables: [&[(&str, Call)]; 4] = [
        bessemer::for_each_unary!(unary),
        bessemer::for_each_binary!(binary),
        bessemer::for_each_ternary!(ternary),
        OTHERS,
    ];
    tables.into_iter().flatten().copied()
}

/// Ops that are not rows of a table of elementwise functions.
const OTHERS: &[(&str, Call)] = &[
    ("add a number", |a| {
        let f = a.float();
        call_unary(|x| x.add(f), a)
    }),
    ("mul by an integer", |a| {
        let i = a.int() as i64;
        call_unary(|x| x.mul(i), a)
    }),
    ("rem by an integer", |a| {
        let i = a.int() as i64;
        call_unary(|x| x.rem(i), a)
    }),
    ("number minus", |a| {
        let f = a.float();
        call_unary(|x| f - x, a)
    }),
    ("select of a condition", |a| {
        call_ternary(|c, x, y| c.gt(0).select(x, y), a)
    }),
    ("clamp to numbers", |a| {
        let (l, h) = (a.float(), a.float());
        call_unary(|x| x.clamp(l, h), a)
    }),
    ("cast", |a| {
        let d = a.dtype();
        call_unary(|x| x.cast(d), a)
    }),
    ("reshape", |a| {
        let s = a.shape();
        call_unary(|x| x.reshape(&s), a)
    }),
    ("flatten", |a| call_unary(Tensor::flatten, a)),
    ("contiguous", |a| call_unary(Tensor::contiguous, a)),
    ("transpose", |a| {
        let (p, q) = (a.axis(), a.axis());
        call_unary(|x| x.transpose(p, q), a)
    }),
    ("t", |a| call_unary(Tensor::t, a)),
    ("permute", |a| {
        let o = a.axes();
        call_unary(|x| x.permute(&o), a)
    }),
    ("slice", |a| {
        let (n, s, e, p) = (a.axis(), a.optional_int(), a.optional_int(), a.int());
        call_unary(|x| x.slice(n, s, e, p), a)
    }),
    ("narrow", |a| {
        let (n, s, l) = (a.axis(), a.size(), a.size());
        call_unary(|x| x.narrow(n, s, l), a)
    }),
    ("index", |a| {
        let (n, i) = (a.axis(), a.int());
        call_unary(|x| x.index(n, i), a)
    }),
    ("broadcast_to", |a| {
        let s = a.shape();
        call_unary(|x| x.broadcast_to(&s), a)
    }),
    ("squeeze", |a| {
        let n = a.axis();
        call_unary(|x| x.squeeze(n), a)
    }),
    ("expand_dims", |a| {
        let n = a.axis();
        call_unary(|x| x.expand_dims(n), a)
    }),
    ("diagonal", |a| {
        let (k, p, q) = (a.int(), a.axis(), a.axis());
        call_unary(|x| x.diagonal(k, p, q), a)
    }),
    ("flip", |a| {
        let n = a.axes();
        call_unary(|x| x.flip(&n), a)
    }),
    ("zeros", |a| vec![Tensor::zeros(a.sizes(), a.dtype())]),
    ("ones", |a| vec![Tensor::ones(a.sizes(), a.dtype())]),
    ("full", |a| {
        vec![Tensor::full(a.sizes(), a.float(), a.dtype())]
    }),
    ("eye", |a| vec![Tensor::eye(a.size(), a.dtype())]),
    ("arange", |a| {
        vec![Tensor::arange(
            a.int() as i64,
            a.int() as i64,
            a.int() as i64,
            a.dtype(),
        )]
    }),
    ("arange of floats", |a| {
        vec![Tensor::arange(a.float(), a.float(), a.float(), a.dtype())]
    }),
    ("linspace", |a| {
        vec![Tensor::linspace(a.float(), a.float(), a.size(), a.dtype())]
    }),
    ("matmul", |a| call_binary(Tensor::matmul, a)),
    ("matvec", |a| {
        let x = a.of_rank(2, 4);
        let n = x.shape().last().copied().unwrap_or(1);
        let n = a.near(n).min(100);
        vec![x.matvec(&a.new_tensor(&[n]))]
    }),
    ("dot", |a| call_binary(Tensor::dot, a)),
    ("outer", |a| call_binary(Tensor::outer, a)),
    ("gemm", |a| {
        let (p, q) = (a.float(), a.float());
        call_ternary(|x, y, z| Tensor::gemm(x, y, z, p, q), a)
    }),
    ("softmax", |a| {
        let n = a.axis();
        call_unary(|x| x.softmax(n), a)
    }),
    ("log_softmax", |a| {
        let n = a.axis();
        call_unary(|x| x.log_softmax(n), a)
    }),
    ("rms_norm", |a| {
        let e = a.float();
        call_binary(|x, w| x.rms_norm(w, e), a)
    }),
    ("layer_norm", |a| {
        let (e, w, b) = (a.float(), a.optional_tensor(), a.optional_tensor());
        call_unary(|x| x.layer_norm(w.as_ref(), b.as_ref(), e), a)
    }),
    ("einsum", |a| {
        let f = a.formula();
        let t = a.up_to_3_tensors();
        vec![Tensor::einsum(&f, &t.iter().collect::<Vec<_>>())]
    }),
    ("matmul_packed", |a| {
        call_binary(
            |x, y| {
                y.prepack()
                    .map_or_else(|_| x.clone(), |p| x.matmul_packed(&p))
            },
            a,
        )
    }),
    ("sum", |a| reduce(Tensor::sum, a)),
    ("mean", |a| reduce(Tensor::mean, a)),
    ("prod", |a| reduce(Tensor::prod, a)),
    ("min", |a| reduce(Tensor::min, a)),
    ("max", |a| reduce(Tensor::max, a)),
    ("any", |a| reduce(Tensor::any, a)),
    ("all", |a| reduce(Tensor::all, a)),
    ("logsumexp", |a| reduce(Tensor::logsumexp, a)),
    ("var", |a| {
        let d = a.size();
        reduce(|x, n, k| x.var(n, k, d), a)
    }),
    ("std", |a| {
        let d = a.size();
        reduce(|x, n, k| x.std(n, k, d), a)
    }),
    ("norm", |a| {
        let p = a.float();
        reduce(|x, n, k| x.norm(n, k, p), a)
    }),
    ("attention", |a| attention(a)),
    ("rope", |a| {
        let (o, n) = (rope(a), a.size());
        call_unary(|x| x.rope(&o, n), a)
    }),
    ("rope at positions", |a| {
        let (o, x) = (rope(a), a.of_rank(2, 4));
        let rows = x.shape().iter().rev().nth(1).copied().unwrap_or(1);
        let rows = a.near(rows).min(100);
        vec![x.rope(&o, a.new_tensor(&[rows]))]
    }),
    ("attention that fits", shaped_attention),
    ("argmin", |a| {
        let (n, k) = (a.axis(), a.boolean());
        call_unary(|x| x.argmin(n, k), a)
    }),
    ("argmax", |a| {
        let (n, k) = (a.axis(), a.boolean());
        call_unary(|x| x.argmax(n, k), a)
    }),
    ("cumsum", |a| along(Tensor::cumsum, a)),
    ("cumprod", |a| along(Tensor::cumprod, a)),
    ("cummax", |a| along(Tensor::cummax, a)),
    ("sort", |a| along(Tensor::sort, a)),
    ("argsort", |a| along(Tensor::argsort, a)),
    ("topk", |a| {
        let (k, n, l) = (a.small_usize(), a.axis(), a.boolean());
        let (values, places) = a.tensor().topk(k, n, l);
        vec![values, places]
    }),
    ("gather", |a| index_along(Tensor::gather, a)),
    ("take", |a| take_at(Tensor::take, a)),
    ("embedding", |a| take_at(|x, _, i| x.embedding(i), a)),
    ("scatter", |a| scatter(Tensor::scatter, a)),
    ("scatter_add", |a| scatter(Tensor::scatter_add, a)),
    ("masked_select", |a| {
        call_binary(|x, m| x.masked_select(m), a)
    }),
    ("masked_select by a condition", |a| {
        call_binary(|x, m| x.masked_select(&m.gt(0)), a)
    }),
    ("slice_update", slice_update),
    ("concat", |a| {
        let (t, n) = (a.up_to_3_tensors(), a.axis());
        vec![Tensor::concat(&t.iter().collect::<Vec<_>>(), n)]
    }),
    ("stack", |a| {
        let (t, n) = (a.up_to_3_tensors(), a.axis());
        vec![Tensor::stack(&t.iter().collect::<Vec<_>>(), n)]
    }),
    ("split", |a| {
        let (s, n) = (a.small_usize(), a.axis());
        // The number of results is an argument: an absurd one would only take time.
        a.tensor().split(s.min(1000), n)
    }),
    ("split_sizes", |a| {
        let (s, n) = (a.sizes(), a.axis());
        a.tensor().split_sizes(&s, n)
    }),
    ("repeat", |a| {
        let (c, n) = (a.small_usize(), a.axis());
        call_unary(|x| x.repeat(c, n), a)
    }),
    ("tile", |a| {
        let c: Vec<_> = (0..a.small_usize() % 10).map(|_| a.small_usize()).collect();
        call_unary(|x| x.tile(&c), a)
    }),
    ("pad", |a| {
        let (x, v) = (a.tensor(), a.float());
        let rank = a.near(x.rank()) % 12;
        let edges: Vec<_> = (0..rank)
            .map(|_| (a.small_usize(), a.small_usize()))
            .collect();
        vec![x.pad(&edges, v)]
    }),
    ("roll", |a| {
        let (s, n) = (a.int(), a.axis());
        call_unary(|x| x.roll(s, n), a)
    }),
    ("tril", |a| {
        let k = a.int();
        call_unary(|x| x.tril(k), a)
    }),
    ("triu", |a| {
        let k = a.int();
        call_unary(|x| x.triu(k), a)
    }),
    ("conv1d", conv1d),
    ("conv2d", conv2d),
    ("max_pool1d", |a| pool(|x, o, _| x.max_pool1d(o), a)),
    ("avg_pool1d", |a| pool(|x, o, _| x.avg_pool1d(o), a)),
    ("max_pool2d", |a| pool(|x, _, o| x.max_pool2d(o), a)),
    ("avg_pool2d", |a| pool(|x, _, o| x.avg_pool2d(o), a)),
    ("upsample_nearest", |a| {
        let s = a.small_usize();
        vec![a.of_rank(2, 5).upsample_nearest(s)]
    }),
    ("group_norm", |a| {
        let x = a.of_rank(2, 8);
        let c = x.shape().get(1).copied().unwrap_or(0);
        let (g, e) = (a.near(c), a.float());
        let c = a.near(c).min(100);
        let (w, b) = (a.new_tensor(&[c]), a.new_tensor(&[c]));
        let (w, b) = (a.boolean().then_some(w), a.boolean().then_some(b));
        vec![x.group_norm(g, w.as_ref(), b.as_ref(), e)]
    }),
    ("batch_norm", |a| {
        let (x, e) = (a.of_rank(2, 8), a.float());
        let c = x.shape().get(1).copied().unwrap_or(0);
        let c = a.near(c).min(100);
        let (m, v) = (a.new_tensor(&[c]), a.new_tensor(&[c]));
        let (w, b) = (a.boolean().then(|| a.new_tensor(&[c])), a.optional_tensor());
        vec![x.batch_norm(&m, &v, w.as_ref(), b.as_ref(), e)]
    }),
    ("cross_entropy", |a| {
        let x = a.of_rank(1, 4);
        let classes = x.shape().last().copied().unwrap_or(1);
        let rows = x.shape()[..x.rank().saturating_sub(1)].to_vec();
        let targets = a.indices(&rows, classes);
        vec![x.cross_entropy(&targets)]
    }),
    ("mse", |a| call_binary(Tensor::mse, a)),
    ("swiglu", |a| call_binary(Tensor::swiglu, a)),
    ("geglu", |a| call_binary(Tensor::geglu, a)),
];

fn attention(a: &mut Args<'_>) -> Vec<Tensor> {
    let q = a.tensor();
    let (k, v, mask) = (a.same_shape(&q), a.same_shape(&q), a.optional_tensor());
    let options = AttentionOptions {
        scale: a.boolean().then(|| a.float()),
        causal: a.boolean(),
        mask: mask.as_ref(),
        window: a.boolean().then(|| a.size()),
        soft_cap: a.boolean().then(|| a.float()),
    };
    vec![q.attention(&k, &v, &options)]
}

fn rope(a: &mut Args<'_>) -> RopeOptions {
    let scaling = match a.size() % 5 {
        0 => RopeScaling::None,
        1 => RopeScaling::Linear { factor: a.float() },
        2 => RopeScaling::Ntk { factor: a.float() },
        3 => RopeScaling::Yarn {
            factor: a.float(),
            original_context: a.size(),
            beta_fast: a.float(),
            beta_slow: a.float(),
        },
        _ => RopeScaling::Llama3 {
            factor: a.float(),
            low_factor: a.float(),
            high_factor: a.float(),
            original_context: a.size(),
        },
    };
    RopeOptions {
        style: if a.boolean() {
            RopeStyle::HalfSplit
        } else {
            RopeStyle::Interleaved
        },
        base: a.float().abs() * 1000.0,
        dims: a.boolean().then(|| a.size()),
        scaling,
        attention_factor: a.boolean().then(|| a.float()),
    }
}
