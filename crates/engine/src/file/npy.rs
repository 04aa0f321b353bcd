//! `.npy`: one array, with a header that is a Python dictionary.

use std::io::{Read, Write};
use std::path::Path;

use super::{Data, Reader, bad, read, swap, write};
use crate::shape::MAX_RANK;
use crate::{DType, Error, Result, Shape, Tensor};

const MAGIC: [u8; 6] = *b"\x93NUMPY";

/// The data begins at a multiple of this.
const ALIGN: usize = 64;

/// NumPy leaves room for the first axis to grow to this many digits without moving the data.
const GROWTH: usize = 21;

impl Tensor {
    /// Reads a NumPy `.npy` file, format versions 1 to 3, little- or big-endian. An array in Fortran
    /// order becomes a transposed view.
    pub fn load_npy(path: impl AsRef<Path>) -> Result<Self> {
        tensor("load_npy", &mut read(path.as_ref())?)
    }

    /// Writes a NumPy `.npy` file, of the very bytes that `numpy.save` writes for the same array in C
    /// order. `bf16`, which NumPy lacks, is an error.
    pub fn save_npy(&self, path: impl AsRef<Path>) -> Result<()> {
        let data = Data::new(self)?;
        let header = header("save_npy", self)?;
        let path = path.as_ref();
        write(path, |file| {
            file.write_all(&header)
                .and_then(|()| file.write_all(data.bytes()))
                .map_err(|e| bad(path, e))
        })
    }
}

/// The next array.
pub(super) fn tensor<R: Read>(op: &'static str, from: &mut Reader<'_, R>) -> Result<Tensor> {
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
    let header = Header::parse(&header).map_err(|e| from.bad(format_args!("header: {e}")))?;
    let (dtype, foreign) = dtype(&header.descr).ok_or_else(|| {
        from.bad(format_args!(
            "type {:?} is none of bool, 8 to 64-bit integers and 16 to 64-bit floats",
            header.descr
        ))
    })?;
    if header.rank > MAX_RANK {
        return Err(Error::RankTooLarge {
            op,
            rank: header.rank,
        });
    }
    let mut dims = header.dims;
    let dims = &mut dims[..header.rank];
    if header.fortran {
        dims.reverse();
    }
    let shape = Shape::new(op, dims)?;
    let mut storage = from.storage(op, dtype, shape)?;
    if foreign {
        swap(storage.bytes_mut().expect("just made"), dtype.size());
    }
    let tensor = Tensor::from_storage(dtype, shape, storage);
    if !header.fortran {
        return Ok(tensor);
    }
    let order: Vec<_> = (0..shape.rank() as isize).rev().collect();
    Ok(tensor.permute(&order))
}

/// The header of a tensor, with all that stands before the data.
pub(super) fn header(op: &'static str, tensor: &Tensor) -> Result<Vec<u8>> {
    let dtype = tensor.dtype();
    let descr = descr(dtype).ok_or(Error::BadDType {
        op,
        dtype,
        expected: "NumPy has no such type",
    })?;
    let dims: Vec<_> = tensor.shape().iter().map(ToString::to_string).collect();
    let comma = if dims.len() == 1 { "," } else { "" };
    let mut text = format!(
        "{{'descr': '{descr}', 'fortran_order': False, 'shape': ({}{comma}), }}",
        dims.join(", ")
    );
    if let Some(first) = dims.first() {
        text.extend((first.len()..GROWTH).map(|_| ' '));
    }
    let before = MAGIC.len() + 4;
    let end = (before + text.len() + 1).next_multiple_of(ALIGN);
    text.extend((before + text.len() + 1..end).map(|_| ' '));
    text.push('\n');
    // A rank of at most 8 keeps the header short.
    let len = u16::try_from(text.len()).expect("a header of a few hundred bytes");
    let mut out = MAGIC.to_vec();
    out.extend([1, 0]);
    out.extend(len.to_le_bytes());
    out.extend(text.into_bytes());
    Ok(out)
}

/// How NumPy names a type.
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

/// The type that NumPy names so, and whether its bytes are in the other order than this machine's.
fn dtype(name: &str) -> Option<(DType, bool)> {
    let (order, code) = match name.as_bytes().first()? {
        b'<' | b'>' | b'|' | b'=' => name.split_at(1),
        _ => ("=", name),
    };
    let dtype = DType::ALL
        .into_iter()
        .find(|&d| descr(d).is_some_and(|d| d[1..] == *code))?;
    let foreign = match order {
        "<" => cfg!(target_endian = "big"),
        ">" => cfg!(target_endian = "little"),
        // "Not applicable" is for bytes.
        "|" if dtype.size() > 1 => return None,
        _ => false,
    };
    Some((dtype, foreign))
}

/// What the dictionary says.
#[derive(Debug, PartialEq, Eq)]
struct Header {
    descr: String,
    fortran: bool,
    /// The first [`MAX_RANK`] dimensions.
    dims: [usize; MAX_RANK],
    rank: usize,
}

impl Header {
    /// Reads `{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }` and nothing else.
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
                "fortran_order" => fortran.replace(text.truth()?).is_none(),
                "shape" => shape.replace(text.tuple()?).is_none(),
                _ => return Err("a key other than descr, fortran_order and shape"),
            };
            if !new {
                return Err("a key is there twice");
            }
            if !text.eat(",") {
                text.expect("}", "no `}` at the end")?;
                break;
            }
        }
        if !text.0.trim_ascii().is_empty() {
            return Err("more after the dictionary");
        }
        match (descr, fortran, shape) {
            (Some(descr), Some(fortran), Some((dims, rank))) => Ok(Self {
                descr: descr.to_owned(),
                fortran,
                dims,
                rank,
            }),
            _ => Err("descr, fortran_order or shape is missing"),
        }
    }
}

/// What is left of a header.
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

    fn truth(&mut self) -> Result<bool, &'static str> {
        match self.eat("True") {
            true => Ok(true),
            false if self.eat("False") => Ok(false),
            false => Err("fortran_order is neither True nor False"),
        }
    }

    fn tuple(&mut self) -> Result<([usize; MAX_RANK], usize), &'static str> {
        let (mut dims, mut rank) = ([0; MAX_RANK], 0);
        self.expect("(", "shape is no tuple")?;
        while !self.eat(")") {
            let digits = self.0.trim_ascii_start();
            let end = digits.bytes().take_while(u8::is_ascii_digit).count();
            let dim = digits[..end]
                .parse()
                .map_err(|_| "shape holds something that is no dimension")?;
            self.0 = &digits[end..];
            // Python 2 wrote long integers so.
            self.eat("L");
            if let Some(to) = dims.get_mut(rank) {
                *to = dim;
            }
            rank += 1;
            if !self.eat(",") {
                self.expect(")", "shape does not end")?;
                break;
            }
        }
        Ok((dims, rank))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_as_python_would_write_them() {
        let expected = |descr: &str, fortran, shape: &[usize]| {
            let mut dims = [0; MAX_RANK];
            dims[..shape.len()].copy_from_slice(shape);
            Ok(Header {
                descr: descr.to_owned(),
                fortran,
                dims,
                rank: shape.len(),
            })
        };
        let parse = |text: &str| Header::parse(text.as_bytes());
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
    fn types_have_the_names_of_numpy() {
        for d in DType::ALL.into_iter().filter(|&d| d != DType::BF16) {
            let name = descr(d).unwrap();
            assert_eq!(dtype(&name), Some((d, false)));
            assert_eq!(dtype(&name[1..]), Some((d, false)));
            assert_eq!(
                dtype(&name.replace('<', ">")),
                Some((d, d.size() > 1 && cfg!(target_endian = "little")))
            );
        }
        for unknown in [
            "", "<", "<f", "|f4", "<c8", "<U3", "|O", "<M8[s]", "é", "<é4",
        ] {
            assert_eq!(dtype(unknown), None, "{unknown}");
        }
    }
}
