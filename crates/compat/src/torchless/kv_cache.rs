//! KV cache of one sequence.

use std::sync::Arc;

use bessemer::{DType, Error, Result, Shape, Tensor};
use bessemer_hal::{Buffer, BufferSlice, StorageMode};

use super::MetalBackend;
use crate::backend::{Backend as _, slice_of};

/// Keys and values of every layer and position, in two buffers `[layer, position, kv_head, dim]` that are allocated once.
#[derive(Debug)]
pub struct MetalKVCache {
    backend: Arc<MetalBackend>,
    keys: Buffer,
    values: Buffer,
    layers: usize,
    max_seq: usize,
    kv_heads: usize,
    head_dim: usize,
    current_pos: usize,
}

impl MetalKVCache {
    /// An empty cache.
    ///
    /// # Errors
    /// [`Error::SizeOverflow`], [`Error::Device`].
    pub fn new(
        backend: &Arc<MetalBackend>,
        layers: usize,
        max_seq: usize,
        kv_heads: usize,
        head_dim: usize,
    ) -> Result<Self> {
        let shape = Shape::new("MetalKVCache", &[layers, max_seq, kv_heads, head_dim])?;
        let buffer =
            || backend.create_buffer(shape.count() * size_of::<f32>(), StorageMode::Shared);
        Ok(Self {
            backend: Arc::clone(backend),
            keys: buffer()?,
            values: buffer()?,
            layers,
            max_seq,
            kv_heads,
            head_dim,
            current_pos: 0,
        })
    }

    /// Number of filled positions.
    pub fn current_pos(&self) -> usize {
        self.current_pos
    }

    /// Elements per position and layer.
    fn position_len(&self) -> usize {
        self.kv_heads * self.head_dim
    }

    /// Offset of a position of a layer, in elements.
    pub fn offset(&self, layer: usize, position: usize) -> usize {
        layer
            .saturating_mul(self.max_seq)
            .saturating_add(position)
            .saturating_mul(self.position_len())
    }

    /// Elements of the keys; the values have as many.
    pub fn cache_elements(&self) -> usize {
        self.layers * self.max_seq * self.position_len()
    }

    /// Size of keys and values in bytes.
    pub fn memory_bytes(&self) -> usize {
        2 * self.cache_elements() * size_of::<f32>()
    }

    fn invalid<T>(op: &'static str, reason: String) -> Result<T> {
        Err(Error::Invalid { op, reason })
    }

    fn positions(
        &self,
        op: &'static str,
        buffer: &Buffer,
        layer: usize,
        from: usize,
        count: usize,
    ) -> Result<BufferSlice> {
        if layer >= self.layers {
            return Self::invalid(
                op,
                format!("layer {layer} is out of range for {} layers", self.layers),
            );
        }
        let start = self.offset(layer, from) * size_of::<f32>();
        slice_of(
            op,
            buffer,
            start,
            count * self.position_len() * size_of::<f32>(),
        )
    }

    /// Writes keys and values `[new, kv_heads, head_dim]` of a layer after the filled positions. Call
    /// [`MetalKVCache::advance`] once all layers have been written.
    ///
    /// # Errors
    /// [`Error::Invalid`]: no such layer, a wrong shape, or a full cache. Nothing is written then.
    pub fn append(&mut self, layer: usize, keys: &Tensor, values: &Tensor) -> Result<()> {
        let op = "append";
        for t in [keys, values] {
            let fits = matches!(t.check()?.shape()[..], [_, h, d] if (h, d) == (self.kv_heads, self.head_dim));
            if !fits || t.shape() != keys.shape() || t.dtype() != DType::F32 {
                let expected = format!("f32 [new, {}, {}]", self.kv_heads, self.head_dim);
                return Self::invalid(
                    op,
                    format!("expected {expected}, got {} {}", t.dtype(), t.shape()),
                );
            }
        }
        let new = keys.shape()[0];
        if new > self.max_seq - self.current_pos {
            let left = self.max_seq - self.current_pos;
            return Self::invalid(op, format!("{new} positions do not fit; {left} are free"));
        }
        for (tensor, buffer) in [(keys, &self.keys), (values, &self.values)] {
            let slice = self.positions(op, buffer, layer, self.current_pos, new)?;
            let tensor = tensor.to(self.backend.device());
            self.backend.external().store(tensor, &slice, &[])?;
        }
        Ok(())
    }

    /// Marks the next `positions` positions as filled.
    ///
    /// # Errors
    /// [`Error::Invalid`], past the end of the cache.
    pub fn advance(&mut self, positions: usize) -> Result<()> {
        if positions > self.max_seq - self.current_pos {
            let left = self.max_seq - self.current_pos;
            return Self::invalid(
                "advance",
                format!("{positions} positions do not fit; {left} are free"),
            );
        }
        self.current_pos += positions;
        Ok(())
    }

    /// The keys of a layer: `[positions, kv_heads, head_dim]`, in place.
    ///
    /// # Errors
    /// [`Error::Invalid`]: no such layer.
    pub fn keys(&self, layer: usize) -> Result<Tensor> {
        self.filled("keys", &self.keys, layer)
    }

    /// The values of a layer, as [`MetalKVCache::keys`].
    ///
    /// # Errors
    /// [`Error::Invalid`]: no such layer.
    pub fn values(&self, layer: usize) -> Result<Tensor> {
        self.filled("values", &self.values, layer)
    }

    fn filled(&self, op: &'static str, buffer: &Buffer, layer: usize) -> Result<Tensor> {
        let slice = self.positions(op, buffer, layer, 0, self.current_pos)?;
        let shape = Shape::new(op, &[self.current_pos, self.kv_heads, self.head_dim])?;
        self.backend.external().tensor(&slice, DType::F32, shape)
    }

    /// Empties the cache.
    pub fn reset(&mut self) {
        self.current_pos = 0;
        self.backend.external().forget(&self.keys);
        self.backend.external().forget(&self.values);
    }
}
