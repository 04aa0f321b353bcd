//! Keys and values of a sequence, for attention.

use std::sync::Arc;

use bessemer_hal::{Buffer, BufferSlice, StorageMode};

use super::{MetalBackend, piece};
use crate::{DType, Error, Result, Shape, Tensor};

/// The keys and values of every layer and position, in buffers that are allocated once. Element
/// `[layer, position, head, dim]` of either is at [`MetalKVCache::offset`] and on.
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

    /// Positions that are filled.
    pub fn current_pos(&self) -> usize {
        self.current_pos
    }

    /// Elements of a position of a layer.
    fn row(&self) -> usize {
        self.kv_heads * self.head_dim
    }

    /// Where a position of a layer begins, in elements.
    pub fn offset(&self, layer: usize, position: usize) -> usize {
        (layer * self.max_seq + position) * self.row()
    }

    /// Elements of the keys, and of the values.
    pub fn cache_elements(&self) -> usize {
        self.layers * self.max_seq * self.row()
    }

    /// Bytes of keys and values.
    pub fn memory_bytes(&self) -> usize {
        2 * self.cache_elements() * size_of::<f32>()
    }

    fn invalid<T>(op: &'static str, reason: String) -> Result<T> {
        Err(Error::Invalid { op, reason })
    }

    fn part(
        &self,
        op: &'static str,
        buffer: &Buffer,
        layer: usize,
        from: usize,
        count: usize,
    ) -> Result<BufferSlice> {
        if layer >= self.layers {
            return Self::invalid(op, format!("layer {layer} of {}", self.layers));
        }
        let start = self.offset(layer, from) * size_of::<f32>();
        piece(op, buffer, start, count * self.row() * size_of::<f32>())
    }

    /// Writes keys and values `[new, kv_heads, head_dim]` of a layer after the positions that are filled.
    /// [`MetalKVCache::advance`] makes them count, once all layers have theirs.
    ///
    /// # Errors
    /// [`Error::Invalid`]: no such layer, another shape, or no room left. Nothing is written then.
    pub fn append(&mut self, layer: usize, keys: &Tensor, values: &Tensor) -> Result<()> {
        let op = "append";
        for t in [keys, values] {
            let fits = matches!(t.check()?.shape()[..], [_, h, d] if (h, d) == (self.kv_heads, self.head_dim));
            if !fits || t.shape() != keys.shape() || t.dtype() != DType::F32 {
                let expected = format!("f32 [new, {}, {}]", self.kv_heads, self.head_dim);
                return Self::invalid(op, format!("{} {} is not {expected}", t.dtype(), t.shape()));
            }
        }
        let new = keys.shape()[0];
        if new > self.max_seq - self.current_pos {
            let left = self.max_seq - self.current_pos;
            return Self::invalid(op, format!("{new} positions are more than the {left} left"));
        }
        for (tensor, buffer) in [(keys, &self.keys), (values, &self.values)] {
            let slice = self.part(op, buffer, layer, self.current_pos, new)?;
            let tensor = tensor.to(self.backend.device_ref());
            self.backend.compute(tensor, &slice, &[])?;
        }
        Ok(())
    }

    /// Counts so many more positions as filled.
    ///
    /// # Errors
    /// [`Error::Invalid`], beyond the end.
    pub fn advance(&mut self, positions: usize) -> Result<()> {
        if positions > self.max_seq - self.current_pos {
            let left = self.max_seq - self.current_pos;
            return Self::invalid("advance", format!("{positions} of {left} positions left"));
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
        let slice = self.part(op, buffer, layer, 0, self.current_pos)?;
        let shape = Shape::new(op, &[self.current_pos, self.kv_heads, self.head_dim])?;
        Ok(self.backend.view(&slice, DType::F32, shape))
    }

    /// Forgets all positions.
    pub fn reset(&mut self) {
        self.current_pos = 0;
        self.backend.forget(&self.keys);
        self.backend.forget(&self.values);
    }
}
