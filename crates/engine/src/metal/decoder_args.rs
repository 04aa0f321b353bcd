//! Argument structs of the decoder's kernels: `decode_*`, `prefill_*` and `sample`.

use super::msl_struct::msl_struct;

msl_struct! {
    /// Arguments of the sampling kernel.
    pub(crate) struct SampleArgs {
        /// Probability masses, in units of 2^-64.
        pub(crate) typical: u64,
        pub(crate) top_p: u64,
        pub(crate) vocab: u32,
        pub(crate) biases: u32,
        pub(crate) window: u32,
        pub(crate) top_k: u32,
        pub(crate) repetition: f32,
        pub(crate) presence: f32,
        pub(crate) frequency: f32,
        pub(crate) min_p: f32,
        /// Inverse of the temperature; 0 when greedy.
        pub(crate) sharpness: f32,
        pub(crate) padding: u32,
    }
}

msl_struct! {
    /// A value added to the logit of a token.
    pub(crate) struct LogitBias {
        pub(crate) token: u32,
        pub(crate) added: f32,
    }
}

msl_struct! {
    /// Sampler state that is carried from token to token.
    #[derive(Default)]
    pub(crate) struct SamplerState {
        pub(crate) seed: u64,
        /// Random numbers drawn.
        pub(crate) draws: u64,
        /// Tokens seen, including the prompt.
        pub(crate) seen: u32,
        pub(crate) padding: u32,
    }
}

msl_struct! {
    /// Occurrences of a token in the penalty window, and the number of the last one.
    #[derive(Default)]
    pub(crate) struct TokenRecord {
        pub(crate) count: u32,
        pub(crate) last: u32,
    }
}

msl_struct! {
    /// Token and position of the next decoding step; the device advances it.
    pub(crate) struct DecodeState {
        pub(crate) token: u32,
        pub(crate) position: u32,
    }
}

msl_struct! {
    /// Query, key and value heads of a layer in a decoding step.
    pub(crate) struct HeadArgs {
        pub(crate) width: u32,
        pub(crate) heads: u32,
        pub(crate) kv_heads: u32,
        pub(crate) dim: u32,
        /// Pairs of a head that are rotated.
        pub(crate) pairs: u32,
        /// Capacity of the KV cache, in positions.
        pub(crate) capacity: u32,
        /// Positions that a token attends to.
        pub(crate) window: u32,
        /// Threadgroups that share the keys of a head.
        pub(crate) splits: u32,
        pub(crate) eps: f32,
        /// Scale of rotated elements.
        pub(crate) factor: f32,
        pub(crate) scale: f32,
        pub(crate) cap: f32,
        /// Row passes of each lane group.
        pub(crate) repeats: u32,
    }
}

msl_struct! {
    /// Arguments of a decoding step's matrix-vector products (GEMV).
    pub(crate) struct GemvArgs {
        pub(crate) rows: u32,
        pub(crate) cols: u32,
        pub(crate) eps: f32,
        /// Soft cap of the results, if they are capped.
        pub(crate) cap: f32,
        /// Row passes of each lane group: more of them amortise the norm before the product.
        pub(crate) repeats: u32,
    }
}

msl_struct! {
    /// Arguments of a decoding step's embedding lookup.
    pub(crate) struct DecodeEmbedArgs {
        pub(crate) width: u32,
        pub(crate) vocab: u32,
        pub(crate) scale: f32,
        pub(crate) token: u32,
        pub(crate) position: u32,
    }
}

msl_struct! {
    /// Arguments of the prefill's embedding lookup.
    pub(crate) struct PrefillEmbedArgs {
        pub(crate) width: u32,
        pub(crate) scale: f32,
    }
}

msl_struct! {
    /// Arguments of the prefill's RMS norm.
    pub(crate) struct PrefillNormArgs {
        pub(crate) width: u32,
        pub(crate) eps: f32,
    }
}

msl_struct! {
    /// Sequence slot and position of a prefill row.
    pub(crate) struct RowPosition {
        pub(crate) slot: u32,
        pub(crate) position: u32,
    }
}

msl_struct! {
    /// Rows of one sequence that form a tile of prefill attention.
    pub(crate) struct QueryTile {
        pub(crate) first: u32,
        pub(crate) count: u32,
        pub(crate) slot: u32,
        /// Position of the first row.
        pub(crate) position: u32,
        /// Length of the sequence with all its rows.
        pub(crate) len: u32,
    }
}

msl_struct! {
    /// Arguments of the prefill's head norms, RoPE and KV cache writes.
    pub(crate) struct PrefillRopeArgs {
        pub(crate) heads: u32,
        pub(crate) kv_heads: u32,
        pub(crate) dim: u32,
        /// Pairs of elements that are rotated.
        pub(crate) pairs: u32,
        pub(crate) rows: u32,
        /// Capacity of a sequence's KV cache, in positions.
        pub(crate) positions: u32,
        pub(crate) eps: f32,
        pub(crate) factor: f32,
    }
}

msl_struct! {
    /// Arguments of prefill attention.
    pub(crate) struct PrefillAttentionArgs {
        pub(crate) heads: u32,
        pub(crate) kv_heads: u32,
        pub(crate) dim: u32,
        pub(crate) positions: u32,
        pub(crate) window: u32,
        pub(crate) scale: f32,
        pub(crate) cap: f32,
        /// Stride from one row of queries to the next, in elements.
        pub(crate) stride: u32,
        /// Query heads of a tile.
        pub(crate) share: u32,
        /// Tiles that share a KV head.
        pub(crate) shares: u32,
    }
}

msl_struct! {
    /// Arguments of the prefill's linear layers.
    pub(crate) struct ProjectArgs {
        pub(crate) vectors: u32,
        pub(crate) cols: u32,
        /// Rows of each matrix.
        pub(crate) rows: [u32; 3],
        /// Stride from one vector of the result to the next, in elements.
        pub(crate) stride: u32,
        pub(crate) cap: f32,
    }
}

msl_struct! {
    /// Arguments of the prefill's FFN gate and up projections.
    pub(crate) struct FfnArgs {
        pub(crate) vectors: u32,
        pub(crate) cols: u32,
        pub(crate) rows: u32,
    }
}
