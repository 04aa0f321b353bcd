//! The calls: of elementwise functions by the tables of the engine, of other ops a line each.

use bessemer::{AttentionOptions, RopeOptions, RopeScaling, RopeStyle, Tensor};

use super::late::{
    conv1d, conv2d, index_along, pool, scatter, shaped_attention, slice_update, take_at,
};
use super::{Args, Call};

fn one(f: impl Fn(&Tensor) -> Tensor, a: &mut Args<'_>) -> Vec<Tensor> {
    vec![f(&a.tensor())]
}

fn two(f: impl Fn(&Tensor, &Tensor) -> Tensor, a: &mut Args<'_>) -> Vec<Tensor> {
    let x = a.tensor();
    let y = a.fitting(&x);
    vec![f(&x, &y)]
}

fn three(f: impl Fn(&Tensor, &Tensor, &Tensor) -> Tensor, a: &mut Args<'_>) -> Vec<Tensor> {
    let x = a.tensor();
    let (y, z) = (a.fitting(&x), a.fitting(&x));
    vec![f(&x, &y, &z)]
}

fn reduce(f: impl Fn(&Tensor, &[isize], bool) -> Tensor, a: &mut Args<'_>) -> Vec<Tensor> {
    let (axes, keepdims) = (a.axes(), a.truth());
    one(|x| f(x, &axes, keepdims), a)
}

fn along(f: impl Fn(&Tensor, isize) -> Tensor, a: &mut Args<'_>) -> Vec<Tensor> {
    let n = a.axis();
    one(|x| f(x, n), a)
}

macro_rules! unary {
    ($(
        $(#[$doc:meta])*
        $variant:ident $name:ident $(($parameter:ident = $sample:literal))? $result:ident $file:ident
        $($bound:ident($($number:literal),+))*;
    )*) => {
        &[$((stringify!($name), |a| {
            $(let $parameter = a.float();)?
            one(|x| x.$name($($parameter)?), a)
        })),*]
    };
}

macro_rules! binary {
    ($(
        $(#[$doc:meta])*
        $variant:ident $name:ident $types:ident $file:ident $($bound:ident($($number:literal),+))*;
    )*) => {
        &[$((stringify!($name), |a| two(|x, y| x.$name(y), a))),*]
    };
}

macro_rules! ternary {
    ($(
        $(#[$doc:meta])*
        $variant:ident $name:ident($b:ident, $c:ident) $types:ident $file:ident
        $($bound:ident($($number:literal),+))*;
    )*) => {
        &[$((stringify!($name), |a| three(|x, y, z| x.$name(y, z), a))),*]
    };
}

/// Every op by its name.
pub fn calls() -> impl Iterator<Item = (&'static str, Call)> + Clone {
    let tables: [&[(&str, Call)]; 4] = [
        bessemer::for_each_unary!(unary),
        bessemer::for_each_binary!(binary),
        bessemer::for_each_ternary!(ternary),
        OTHERS,
    ];
    tables.into_iter().flatten().copied()
}

/// What is not a row of a table of elementwise functions.
const OTHERS: &[(&str, Call)] = &[
    ("add a number", |a| {
        let f = a.float();
        one(|x| x.add(f), a)
    }),
    ("mul by an integer", |a| {
        let i = a.int() as i64;
        one(|x| x.mul(i), a)
    }),
    ("rem by an integer", |a| {
        let i = a.int() as i64;
        one(|x| x.rem(i), a)
    }),
    ("number minus", |a| {
        let f = a.float();
        one(|x| f - x, a)
    }),
    ("select of a condition", |a| {
        three(|c, x, y| c.gt(0).select(x, y), a)
    }),
    ("clamp to numbers", |a| {
        let (l, h) = (a.float(), a.float());
        one(|x| x.clamp(l, h), a)
    }),
    ("cast", |a| {
        let d = a.dtype();
        one(|x| x.cast(d), a)
    }),
    ("reshape", |a| {
        let s = a.shape();
        one(|x| x.reshape(&s), a)
    }),
    ("flatten", |a| one(Tensor::flatten, a)),
    ("contiguous", |a| one(Tensor::contiguous, a)),
    ("transpose", |a| {
        let (p, q) = (a.axis(), a.axis());
        one(|x| x.transpose(p, q), a)
    }),
    ("t", |a| one(Tensor::t, a)),
    ("permute", |a| {
        let o = a.axes();
        one(|x| x.permute(&o), a)
    }),
    ("slice", |a| {
        let (n, s, e, p) = (a.axis(), a.bound(), a.bound(), a.int());
        one(|x| x.slice(n, s, e, p), a)
    }),
    ("narrow", |a| {
        let (n, s, l) = (a.axis(), a.size(), a.size());
        one(|x| x.narrow(n, s, l), a)
    }),
    ("index", |a| {
        let (n, i) = (a.axis(), a.int());
        one(|x| x.index(n, i), a)
    }),
    ("broadcast_to", |a| {
        let s = a.shape();
        one(|x| x.broadcast_to(&s), a)
    }),
    ("squeeze", |a| {
        let n = a.axis();
        one(|x| x.squeeze(n), a)
    }),
    ("expand_dims", |a| {
        let n = a.axis();
        one(|x| x.expand_dims(n), a)
    }),
    ("diagonal", |a| {
        let (k, p, q) = (a.int(), a.axis(), a.axis());
        one(|x| x.diagonal(k, p, q), a)
    }),
    ("flip", |a| {
        let n = a.axes();
        one(|x| x.flip(&n), a)
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
    ("matmul", |a| two(Tensor::matmul, a)),
    ("matvec", |a| {
        let x = a.of_rank(2, 4);
        let n = x.shape().last().copied().unwrap_or(1);
        let n = a.around(n).min(100);
        vec![x.matvec(&a.made(&[n]))]
    }),
    ("dot", |a| two(Tensor::dot, a)),
    ("outer", |a| two(Tensor::outer, a)),
    ("gemm", |a| {
        let (p, q) = (a.float(), a.float());
        three(|x, y, z| Tensor::gemm(x, y, z, p, q), a)
    }),
    ("softmax", |a| {
        let n = a.axis();
        one(|x| x.softmax(n), a)
    }),
    ("log_softmax", |a| {
        let n = a.axis();
        one(|x| x.log_softmax(n), a)
    }),
    ("rms_norm", |a| {
        let e = a.float();
        two(|x, w| x.rms_norm(w, e), a)
    }),
    ("layer_norm", |a| {
        let (e, w, b) = (a.float(), a.maybe(), a.maybe());
        one(|x| x.layer_norm(w.as_ref(), b.as_ref(), e), a)
    }),
    ("einsum", |a| {
        let f = a.formula();
        let t = a.several();
        vec![Tensor::einsum(&f, &t.iter().collect::<Vec<_>>())]
    }),
    ("matmul_packed", |a| {
        two(
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
        one(|x| x.rope(&o, n), a)
    }),
    ("rope at positions", |a| {
        let (o, x) = (rope(a), a.of_rank(2, 4));
        let rows = x.shape().iter().rev().nth(1).copied().unwrap_or(1);
        let rows = a.around(rows).min(100);
        vec![x.rope(&o, a.made(&[rows]))]
    }),
    ("attention that fits", shaped_attention),
    ("argmin", |a| {
        let (n, k) = (a.axis(), a.truth());
        one(|x| x.argmin(n, k), a)
    }),
    ("argmax", |a| {
        let (n, k) = (a.axis(), a.truth());
        one(|x| x.argmax(n, k), a)
    }),
    ("cumsum", |a| along(Tensor::cumsum, a)),
    ("cumprod", |a| along(Tensor::cumprod, a)),
    ("cummax", |a| along(Tensor::cummax, a)),
    ("sort", |a| along(Tensor::sort, a)),
    ("argsort", |a| along(Tensor::argsort, a)),
    ("topk", |a| {
        let (k, n, l) = (a.few(), a.axis(), a.truth());
        let (values, places) = a.tensor().topk(k, n, l);
        vec![values, places]
    }),
    ("gather", |a| index_along(Tensor::gather, a)),
    ("take", |a| take_at(Tensor::take, a)),
    ("embedding", |a| take_at(|x, _, i| x.embedding(i), a)),
    ("scatter", |a| scatter(Tensor::scatter, a)),
    ("scatter_add", |a| scatter(Tensor::scatter_add, a)),
    ("masked_select", |a| two(|x, m| x.masked_select(m), a)),
    ("masked_select by a condition", |a| {
        two(|x, m| x.masked_select(&m.gt(0)), a)
    }),
    ("slice_update", slice_update),
    ("concat", |a| {
        let (t, n) = (a.several(), a.axis());
        vec![Tensor::concat(&t.iter().collect::<Vec<_>>(), n)]
    }),
    ("stack", |a| {
        let (t, n) = (a.several(), a.axis());
        vec![Tensor::stack(&t.iter().collect::<Vec<_>>(), n)]
    }),
    ("split", |a| {
        let (s, n) = (a.few(), a.axis());
        // As many parts as are asked for: an absurd number of them would only take time.
        a.tensor().split(s.min(1000), n)
    }),
    ("split_sizes", |a| {
        let (s, n) = (a.sizes(), a.axis());
        a.tensor().split_sizes(&s, n)
    }),
    ("repeat", |a| {
        let (c, n) = (a.few(), a.axis());
        one(|x| x.repeat(c, n), a)
    }),
    ("tile", |a| {
        let c: Vec<_> = (0..a.few() % 10).map(|_| a.few()).collect();
        one(|x| x.tile(&c), a)
    }),
    ("pad", |a| {
        let (x, v) = (a.tensor(), a.float());
        let rank = a.around(x.rank()) % 12;
        let edges: Vec<_> = (0..rank).map(|_| (a.few(), a.few())).collect();
        vec![x.pad(&edges, v)]
    }),
    ("roll", |a| {
        let (s, n) = (a.int(), a.axis());
        one(|x| x.roll(s, n), a)
    }),
    ("tril", |a| {
        let k = a.int();
        one(|x| x.tril(k), a)
    }),
    ("triu", |a| {
        let k = a.int();
        one(|x| x.triu(k), a)
    }),
    ("conv1d", conv1d),
    ("conv2d", conv2d),
    ("max_pool1d", |a| pool(|x, o, _| x.max_pool1d(o), a)),
    ("avg_pool1d", |a| pool(|x, o, _| x.avg_pool1d(o), a)),
    ("max_pool2d", |a| pool(|x, _, o| x.max_pool2d(o), a)),
    ("avg_pool2d", |a| pool(|x, _, o| x.avg_pool2d(o), a)),
    ("upsample_nearest", |a| {
        let s = a.few();
        vec![a.of_rank(2, 5).upsample_nearest(s)]
    }),
    ("group_norm", |a| {
        let x = a.of_rank(2, 8);
        let c = x.shape().get(1).copied().unwrap_or(0);
        let (g, e) = (a.around(c), a.float());
        let c = a.around(c).min(100);
        let (w, b) = (a.made(&[c]), a.made(&[c]));
        let (w, b) = (a.truth().then_some(w), a.truth().then_some(b));
        vec![x.group_norm(g, w.as_ref(), b.as_ref(), e)]
    }),
    ("batch_norm", |a| {
        let (x, e) = (a.of_rank(2, 8), a.float());
        let c = x.shape().get(1).copied().unwrap_or(0);
        let c = a.around(c).min(100);
        let (m, v) = (a.made(&[c]), a.made(&[c]));
        let (w, b) = (a.truth().then(|| a.made(&[c])), a.maybe());
        vec![x.batch_norm(&m, &v, w.as_ref(), b.as_ref(), e)]
    }),
    ("cross_entropy", |a| {
        let x = a.of_rank(1, 4);
        let classes = x.shape().last().copied().unwrap_or(1);
        let rows = x.shape()[..x.rank().saturating_sub(1)].to_vec();
        let targets = a.indices(&rows, classes);
        vec![x.cross_entropy(&targets)]
    }),
    ("mse", |a| two(Tensor::mse, a)),
    ("swiglu", |a| two(Tensor::swiglu, a)),
    ("geglu", |a| two(Tensor::geglu, a)),
];

fn attention(a: &mut Args<'_>) -> Vec<Tensor> {
    let q = a.tensor();
    let (k, v, mask) = (a.fitting(&q), a.fitting(&q), a.maybe());
    let options = AttentionOptions {
        scale: a.truth().then(|| a.float()),
        causal: a.truth(),
        mask: mask.as_ref(),
        window: a.truth().then(|| a.size()),
        soft_cap: a.truth().then(|| a.float()),
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
        style: if a.truth() {
            RopeStyle::HalfSplit
        } else {
            RopeStyle::Interleaved
        },
        base: a.float().abs() * 1000.0,
        dims: a.truth().then(|| a.size()),
        scaling,
        attention_factor: a.truth().then(|| a.float()),
    }
}
