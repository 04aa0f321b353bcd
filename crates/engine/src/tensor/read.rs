//! Reading the values of tensors.

use std::borrow::Cow;

use crate::{Element, Error, Result, Tensor};

impl Tensor {
    fn expect_type<T: Element>(&self, op: &'static str) -> Result<()> {
        self.check()?;
        if self.dtype() == T::DTYPE {
            return Ok(());
        }
        Err(Error::WrongType {
            op,
            actual: self.dtype(),
            requested: T::DTYPE,
        })
    }

    /// The elements in row-major order: borrowed if they are contiguous, otherwise copied.
    pub fn to_slice<T: Element>(&self) -> Result<Cow<'_, [T]>> {
        self.expect_type::<T>("to_slice")?;
        self.eval()?;
        let storage = self.node.value.get().expect("evaluated");
        storage.ready("to_slice")?;
        let all = bytemuck::checked::cast_slice::<u8, T>(storage.bytes());
        let layout = self.layout();
        if layout.is_contiguous() {
            let start = layout.offset().min(all.len());
            return Ok(Cow::Borrowed(&all[start..start + layout.count()]));
        }
        if layout.count() < 1024 {
            return Ok(Cow::Owned(layout.offsets().map(|i| all[i]).collect()));
        }
        // Large enough to be worth a kernel and a copy of its result.
        let dense = self.contiguous();
        Ok(Cow::Owned(dense.to_slice::<T>()?.into_owned()))
    }

    /// The bytes of the elements in row-major order.
    pub(crate) fn to_bytes(&self, op: &'static str) -> Result<Vec<u8>> {
        let dense = if self.layout().is_contiguous() {
            self.clone()
        } else {
            self.contiguous()
        };
        let storage = dense.eval()?.node.value.get().expect("evaluated");
        storage.ready(op)?;
        let size = self.dtype().size();
        let (start, len) = (dense.layout().offset() * size, self.count() * size);
        let all = storage.bytes();
        Ok(all[start.min(all.len())..][..len].to_vec())
    }

    /// The elements in row-major order. The type must be the tensor's.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        Ok(self.to_slice()?.into_owned())
    }

    /// The element of a tensor with one element.
    pub fn item<T: Element>(&self) -> Result<T> {
        self.expect_type::<T>("item")?;
        if self.count() != 1 {
            return Err(Error::BadShape {
                op: "item",
                shape: *self.shape(),
                reason: "it must have exactly one element".to_owned(),
            });
        }
        Ok(self.to_slice()?[0])
    }
}
