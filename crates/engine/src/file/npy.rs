//! `.npy`: one array, with a header that is a Python dictionary.
//!
//! [`Tensor::load_npy`] and [`Tensor::save_npy`] read and write tensors. [`read()`] and [`write()`] do the same with
//! plain bytes, for programs with their own buffers.
//!
//! A reader of our own rather than a crate: the header is a dictionary with three known keys, and the data is read
//! directly into a tensor's storage, after its length was compared with the file's.

use std::io::{Read, Write};
use std::path::Path;

use super::{Data, Reader, bad, normalize_bools, swap_bytes};
use crate::shape::MAX_RANK;
use crate::{DType, Error, Result, Shape, Tensor};

const MAGIC: [u8; 6] = *b"\x93NUMPY";

/// Alignment of the data in the file.
const DATA_ALIGN_BYTES: usize = 64;

/// NumPy pads the header so that the first dimension can grow to this many digits without moving the data.
const MAX_FIRST_DIM_DIGITS: usize = 21;

/// NumPy's own limit on the rank of an array.
const MAX_NUMPY_RANK: usize = 64;

/// An array as plain bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Array {
    /// The type of the elements.
    pub dtype: DType,
    /// The shape; its rank may exceed that of a tensor.
    pub shape: Vec<usize>,
    /// The elements, row-major, in this machine's byte order. Those of `bool` are 0 or 1.
    pub data: Vec<u8>,
}

/// Reads a NumPy `.npy` file, format versions 1 to 3, little- or big-endian, in C order. `bf16`, which NumPy lacks, is
/// read as `ml_dtypes` writes it: a void type of two bytes.
pub fn read(path: impl AsRef<Path>) -> Result<Array> {
    array(&mut super::read(path.as_ref())?)
}

/// Writes a NumPy `.npy` file. `bf16`, which NumPy lacks, is an error.
pub fn write(path: impl AsRef<Path>, array: &Array) -> Result<()> {
    const OP: &str = "npy::write";
    let Array { dtype, shape, data } = array;
    if byte_count(*dtype, shape) != Some(data.len()) {
        return Err(Error::Invalid {
            op: OP,
            reason: format!(
                "{} bytes do not match an array of {dtype} {shape:?}",
                data.len()
            ),
        });
    }
    write_parts(path.as_ref(), &header(OP, *dtype, shape)?, data)
}

fn write_parts(path: &Path, header: &[u8], data: &[u8]) -> Result<()> {
    super::write(path, |file| {
        file.write_all(header)
            .and_then(|()| file.write_all(data))
            .map_err(|e| bad(path, e))
    })
}

fn byte_count(dtype: DType, shape: &[usize]) -> Option<usize> {
    shape
        .iter()
        .try_fold(dtype.size(), |product, &dim| product.checked_mul(dim))
}

impl Tensor {
    /// Reads a NumPy `.npy` file, format versions 1 to 3, little- or big-endian. An array in Fortran
    /// order becomes a transposed view.
    pub fn load_npy(path: impl AsRef<Path>) -> Result<Self> {
        tensor("load_npy", &mut super::read(path.as_ref())?)
    }

    /// Writes a NumPy `.npy` file, with the same bytes as `numpy.save` for the same array in C order. `bf16`, which
    /// NumPy lacks, is an error.
    pub fn save_npy(&self, path: impl AsRef<Path>) -> Result<()> {
        let data = Data::new(self)?;
        let header = header("save_npy", self.dtype(), self.shape())?;
        write_parts(path.as_ref(), &header, data.bytes())
    }
}

/// Reads everything before the data: its type, whether its byte order is foreign, and the header.
fn preamble<R: Read>(from: &mut Reader<'_, R>) -> Result<(DType, bool, NpyHeader)> {
    let magic: [u8; 6] = from.array("the signature")?;
    if magic != MAGIC {
        return Err(from.bad("not a .npy file: it does not begin with \\x93NUMPY"));
    }
    let [major, minor] = from.array("the version")?;
    let len = match (major, minor) {
        (1, 0) => u64::from(u16::from_le_bytes(from.array("the header's length")?)),
        (2 | 3, 0) => u64::from(u32::from_le_bytes(from.array("the header's length")?)),
        _ => {
            return Err(from.bad(format_args!(
                ".npy version {major}.{minor} is unknown; 1.0, 2.0 and 3.0 are"
            )));
        }
    };
    let header = from.bytes(len, "the header")?;
    let header = NpyHeader::parse(&header).map_err(|e| from.bad(format_args!("header: {e}")))?;
    let (dtype, foreign) = dtype(&header.descr).ok_or_else(|| {
        from.bad(format_args!(
            "type {:?} is not supported; bool, 8 to 64-bit integers and 16 to 64-bit floats are",
            header.descr
        ))
    })?;
    Ok((dtype, foreign, header))
}

/// Reads the next array as bytes.
pub(super) fn array<R: Read>(from: &mut Reader<'_, R>) -> Result<Array> {
    let (dtype, foreign, header) = preamble(from)?;
    if header.fortran {
        return Err(from.bad(
            "the array is in Fortran order; save it in C order with `numpy.ascontiguousarray(array)`",
        ));
    }
    let len = byte_count(dtype, &header.dims)
        .ok_or_else(|| from.bad("the array is larger than the address space"))?;
    let mut data = from.bytes(len as u64, "the data")?;
    if foreign {
        swap_bytes(&mut data, dtype.size());
    }
    if dtype == DType::Bool {
        normalize_bools(&mut data);
    }
    Ok(Array {
        dtype,
        shape: header.dims,
        data,
    })
}

/// Reads the next array as a tensor.
pub(super) fn tensor<R: Read>(op: &'static str, from: &mut Reader<'_, R>) -> Result<Tensor> {
    let (dtype, foreign, header) = preamble(from)?;
    let mut dims = header.dims;
    if dims.len() > MAX_RANK {
        return Err(Error::RankTooLarge {
            op,
            rank: dims.len(),
        });
    }
    if header.fortran {
        dims.reverse();
    }
    let shape = Shape::new(op, &dims)?;
    let mut storage = from.storage(op, dtype, shape)?;
    if foreign {
        swap_bytes(storage.bytes_mut().expect("not shared"), dtype.size());
    }
    let tensor = Tensor::from_storage(dtype, shape, storage);
    if !header.fortran {
        return Ok(tensor);
    }
    let order: Vec<_> = (0..shape.rank() as isize).rev().collect();
    Ok(tensor.permute(&order))
}

/// The bytes before the data: signature, version and header.
pub(super) fn header(op: &'static str, dtype: DType, shape: &[usize]) -> Result<Vec<u8>> {
    let descr = descr(dtype).ok_or(Error::BadDType {
        op,
        dtype,
        expected: "NumPy has no such type",
    })?;
    let dims: Vec<_> = shape.iter().map(ToString::to_string).collect();
    let comma = if dims.len() == 1 { "," } else { "" };
    let mut text = format!(
        "{{'descr': '{descr}', 'fortran_order': False, 'shape': ({}{comma}), }}",
        dims.join(", ")
    );
    if let Some(first) = dims.first() {
        text.extend((first.len()..MAX_FIRST_DIM_DIGITS).map(|_| ' '));
    }
    let before = MAGIC.len() + 4;
    let end = (before + text.len() + 1).next_multiple_of(DATA_ALIGN_BYTES);
    text.extend((before + text.len() + 1..end).map(|_| ' '));
    text.push('\n');
    let len = u16::try_from(text.len()).map_err(|_| Error::RankTooLarge {
        op,
        rank: shape.len(),
    })?;
    let mut out = MAGIC.to_vec();
    out.extend([1, 0]);
    out.extend(len.to_le_bytes());
    out.extend(text.into_bytes());
    Ok(out)
}

/// NumPy's name of a type.
fn descr(dtype: DType) -> Option<String> {
    let code = match dtype {
        DType::Bool => "b1",
        DType::U8 => "u1",
        DType::U16 => "u2",
        DType::U32 => "u4",
        DType::U64 => "u8",
        DType::I8 => "i1",
        DType::I16 => "i2",
        DType::I32 => "i4",
        DType::I64 => "i8",
        DType::F16 => "f2",
        DType::F32 => "f4",
        DType::F64 => "f8",
        DType::BF16 => return None,
    };
    let order = match dtype.size() {
        1 => '|',
        _ if cfg!(target_endian = "little") => '<',
        _ => '>',
    };
    Some(format!("{order}{code}"))
}

/// The type of a NumPy name, and whether its byte order differs from this machine's.
fn dtype(name: &str) -> Option<(DType, bool)> {
    let (order, code) = match name.as_bytes().first()? {
        b'<' | b'>' | b'|' | b'=' => name.split_at(1),
        _ => ("=", name),
    };
    let dtype = match code {
        "?" => DType::Bool,
        // `ml_dtypes` writes bfloat16 like this, with either order.
        "V2" => DType::BF16,
        _ => DType::ALL
            .into_iter()
            .find(|&d| descr(d).is_some_and(|d| d[1..] == *code))?,
    };
    let foreign = match order {
        "<" => cfg!(target_endian = "big"),
        ">" => cfg!(target_endian = "little"),
        // "Not applicable" is for single bytes.
        "|" if dtype.size() > 1 && code != "V2" => return None,
        _ => false,
    };
    Some((dtype, foreign))
}

/// The header's dictionary.
#[derive(Debug, PartialEq, Eq)]
struct NpyHeader {
    descr: String,
    fortran: bool,
    dims: Vec<usize>,
}

impl NpyHeader {
    /// Parses a dictionary such as `{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }`.
    fn parse(bytes: &[u8]) -> Result<Self, &'static str> {
        let text = std::str::from_utf8(bytes).map_err(|_| "not text")?;
        let mut text = Text(text);
        let (mut descr, mut fortran, mut shape) = (None, None, None);
        text.expect("{", "no dictionary")?;
        while !text.eat("}") {
            let key = text.string()?;
            text.expect(":", "no `:` after a key")?;
            let new = match key {
                "descr" => descr.replace(text.string()?).is_none(),
                "fortran_order" => fortran.replace(text.boolean()?).is_none(),
                "shape" => shape.replace(text.tuple()?).is_none(),
                _ => return Err("a key other than descr, fortran_order and shape"),
            };
            if !new {
                return Err("duplicate key");
            }
            if !text.eat(",") {
                text.expect("}", "no `}` at the end")?;
                break;
            }
        }
        if !text.0.trim_ascii().is_empty() {
            return Err("more after the dictionary");
        }
        Ok(Self {
            descr: descr.ok_or("descr is missing")?.to_owned(),
            fortran: fortran.ok_or("fortran_order is missing")?,
            dims: shape.ok_or("shape is missing")?,
        })
    }
}

/// The unparsed rest of a header.
struct Text<'a>(&'a str);

impl<'a> Text<'a> {
    fn eat(&mut self, token: &str) -> bool {
        self.0 = self.0.trim_ascii_start();
        match self.0.strip_prefix(token) {
            Some(rest) => {
                self.0 = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, token: &str, error: &'static str) -> Result<(), &'static str> {
        self.eat(token).then_some(()).ok_or(error)
    }

    fn string(&mut self) -> Result<&'a str, &'static str> {
        let quote = match (self.eat("'"), self.0) {
            (true, _) => '\'',
            (false, _) if self.eat("\"") => '"',
            _ => return Err("no string where one belongs (structured types are not read)"),
        };
        let (string, rest) = self.0.split_once(quote).ok_or("a string without end")?;
        self.0 = rest;
        Ok(string)
    }

    fn boolean(&mut self) -> Result<bool, &'static str> {
        if self.eat("True") {
            Ok(true)
        } else if self.eat("False") {
            Ok(false)
        } else {
            Err("fortran_order is neither True nor False")
        }
    }

    fn tuple(&mut self) -> Result<Vec<usize>, &'static str> {
        let mut dims = Vec::new();
        self.expect("(", "shape is no tuple")?;
        while !self.eat(")") {
            let digits = self.0.trim_ascii_start();
            let end = digits.bytes().take_while(u8::is_ascii_digit).count();
            let dim = digits[..end]
                .parse()
                .map_err(|_| "shape contains something that is not a dimension")?;
            self.0 = &digits[end..];
            // Python 2 writes long integers with this suffix.
            self.eat("L");
            if dims.len() == MAX_NUMPY_RANK {
                return Err("shape has more than 64 dimensions");
            }
            dims.push(dim);
            if !self.eat(",") {
                self.expect(")", "shape does not end")?;
                break;
            }
        }
        Ok(dims)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_headers_as_python_writes_them() {
        let expected = |descr: &str, fortran, shape: &[usize]| {
            Ok(NpyHeader {
                descr: descr.to_owned(),
                fortran,
                dims: shape.to_vec(),
            })
        };
        let parse = |text: &str| NpyHeader::parse(text.as_bytes());
        assert_eq!(
            parse("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }   \n"),
            expected("<f4", false, &[2, 3])
        );
        assert_eq!(
            parse("{\"shape\":(5L,),\"fortran_order\":True,\"descr\":\"|u1\"}"),
            expected("|u1", true, &[5])
        );
        assert_eq!(
            parse("{'descr': '>i8', 'fortran_order': False, 'shape': ()}"),
            expected(">i8", false, &[])
        );
        for bad in [
            "",
            "{",
            "{}",
            "[1]",
            "{'descr': '<f4', 'fortran_order': False}",
            "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}",
            "{'descr': '<f4', 'fortran_order': 0, 'shape': (1,)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (,)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}",
            "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': ()}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': ()} x",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (), 'more': ''}",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn types_round_trip_through_numpy_names() {
        for d in DType::ALL.into_iter().filter(|&d| d != DType::BF16) {
            let name = descr(d).unwrap();
            assert_eq!(dtype(&name), Some((d, false)));
            assert_eq!(dtype(&name[1..]), Some((d, false)));
            assert_eq!(
                dtype(&name.replace('<', ">")),
                Some((d, d.size() > 1 && cfg!(target_endian = "little")))
            );
        }
        assert_eq!(dtype("|V2"), Some((DType::BF16, false)));
        assert_eq!(dtype("<V2"), dtype("|V2"));
        assert_eq!(dtype("?"), Some((DType::Bool, false)));
        for unknown in [
            "", "<", "<f", "|f4", "<c8", "<U3", "|O", "<M8[s]", "é", "<é4",
        ] {
            assert_eq!(dtype(unknown), None, "{unknown}");
        }
    }
}
