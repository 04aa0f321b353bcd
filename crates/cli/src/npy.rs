//! NumPy's `.npy` format: reading versions 1 to 3, writing version 1.
//!
//! A file is untrusted: nothing in it may cause a panic, and memory is taken as bytes arrive, never
//! because a header claims them. Arrays are in C order. What NumPy has no type for is kept as close as
//! it can be: bfloat16 is read from `ml_dtypes`' two-byte void type and written as float32, which holds
//! it exactly.

use crate::dtype::DType;
use anyhow::{Context as _, Result, bail};
use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::Path;

const MAGIC: &[u8; 6] = b"\x93NUMPY";
/// NumPy itself refuses headers past 10,000 bytes unless told otherwise.
const MAX_HEADER: usize = 64 * 1024;
/// NumPy's own limit.
const MAX_DIMENSIONS: usize = 64;

/// Elements with their type and shape, little-endian and in C order.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Array {
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<usize>,
    pub(crate) data: Vec<u8>,
}

impl Array {
    /// The same values in another type.
    pub(crate) fn convert(self, dtype: DType) -> Self {
        if dtype == self.dtype {
            return self;
        }
        let count = self.data.len() / self.dtype.size();
        let mut data = vec![0; count * dtype.size()];
        let elements = self.data.chunks_exact(self.dtype.size());
        for (source, target) in elements.zip(data.chunks_exact_mut(dtype.size())) {
            dtype.store(self.dtype.load(source), target);
        }
        Self {
            dtype,
            shape: self.shape,
            data,
        }
    }
}

/// Reads a file.
pub(crate) fn read(path: &Path) -> Result<Array> {
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    parse(file).with_context(|| format!("cannot read {}", path.display()))
}

/// Reads an array from a stream; what follows the array is left alone, as NumPy does.
fn parse(mut input: impl Read) -> Result<Array> {
    let mut start = [0; 8];
    input
        .read_exact(&mut start)
        .context("not a .npy file: shorter than its first eight bytes")?;
    if &start[..6] != MAGIC {
        bail!("not a .npy file: it does not begin with \\x93NUMPY");
    }
    let length = match start[6] {
        1 => {
            let mut field = [0; 2];
            input.read_exact(&mut field).context("header cut short")?;
            usize::from(u16::from_le_bytes(field))
        }
        2 | 3 => {
            let mut field = [0; 4];
            input.read_exact(&mut field).context("header cut short")?;
            u32::from_le_bytes(field) as usize
        }
        version => bail!("unknown .npy version {version}; versions 1 to 3 are known"),
    };
    if length > MAX_HEADER {
        bail!("a header of {length} bytes is longer than the {MAX_HEADER} allowed");
    }
    let mut header = vec![0; length];
    input.read_exact(&mut header).context("header cut short")?;
    let header = Header::parse(&String::from_utf8_lossy(&header))?;
    if header.fortran_order {
        bail!(
            "the array is in Fortran order; save it in C order with `numpy.ascontiguousarray(array)`"
        );
    }
    let (dtype, big_endian) = element_type(&header.descr)?;
    let bytes = header
        .shape
        .iter()
        .try_fold(dtype.size(), |product, dim| product.checked_mul(*dim))
        .context("the shape's product overflows")?;
    let mut data = Vec::new();
    let limit = u64::try_from(bytes).context("the shape's product overflows")?;
    input.take(limit).read_to_end(&mut data)?;
    if data.len() < bytes {
        bail!(
            "the header promises {bytes} bytes of data, the file has {}",
            data.len()
        );
    }
    if big_endian {
        for element in data.chunks_exact_mut(dtype.size()) {
            element.reverse();
        }
    }
    if dtype == DType::Bool {
        for byte in &mut data {
            *byte = u8::from(*byte != 0);
        }
    }
    Ok(Array {
        dtype,
        shape: header.shape,
        data,
    })
}

/// Writes a file.
pub(crate) fn write(path: &Path, array: &Array) -> Result<()> {
    let write = || -> Result<()> {
        let mut output = BufWriter::new(File::create(path)?);
        serialize(&mut output, array)?;
        output.flush()?;
        Ok(())
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

fn serialize(output: &mut impl Write, array: &Array) -> Result<()> {
    if array.dtype == DType::BF16 {
        return serialize(output, &array.clone().convert(DType::F32));
    }
    let descr = match array.dtype {
        DType::F64 => "<f8",
        DType::F32 | DType::BF16 => "<f4",
        DType::F16 => "<f2",
        DType::I8 => "|i1",
        DType::U8 => "|u1",
        DType::I16 => "<i2",
        DType::U16 => "<u2",
        DType::I32 => "<i4",
        DType::U32 => "<u4",
        DType::I64 => "<i8",
        DType::U64 => "<u8",
        DType::Bool => "|b1",
    };
    let dims: Vec<_> = array.shape.iter().map(usize::to_string).collect();
    let comma = if dims.len() == 1 { "," } else { "" };
    let mut header = format!(
        "{{'descr': '{descr}', 'fortran_order': False, 'shape': ({}{comma}), }}",
        dims.join(", ")
    );
    // The data begins at a multiple of 64 bytes, and the header ends with a newline.
    let used = MAGIC.len() + 4 + header.len() + 1;
    header.push_str(&" ".repeat(used.next_multiple_of(64) - used));
    header.push('\n');
    output.write_all(MAGIC)?;
    output.write_all(&[1, 0])?;
    let length = u16::try_from(header.len()).context("too many dimensions")?;
    output.write_all(&length.to_le_bytes())?;
    output.write_all(header.as_bytes())?;
    output.write_all(&array.data)?;
    Ok(())
}

/// NumPy's type string: byte order, letter, bytes.
fn element_type(descr: &str) -> Result<(DType, bool)> {
    let (big_endian, rest) = match descr.as_bytes().first() {
        Some(b'>') => (true, &descr[1..]),
        Some(b'<' | b'|' | b'=') => (false, &descr[1..]),
        _ => (false, descr),
    };
    let dtype = match rest {
        "f8" => DType::F64,
        "f4" => DType::F32,
        "f2" => DType::F16,
        // What `ml_dtypes.bfloat16` arrays are saved as.
        "V2" => DType::BF16,
        "i1" => DType::I8,
        "u1" => DType::U8,
        "i2" => DType::I16,
        "u2" => DType::U16,
        "i4" => DType::I32,
        "u4" => DType::U32,
        "i8" => DType::I64,
        "u8" => DType::U64,
        "b1" | "?" => DType::Bool,
        _ => bail!("element type `{descr}` is not a real number that Metal knows"),
    };
    Ok((dtype, big_endian))
}

#[derive(Debug, Default, PartialEq)]
struct Header {
    descr: String,
    fortran_order: bool,
    shape: Vec<usize>,
}

impl Header {
    /// Reads the Python dictionary that is the header.
    fn parse(text: &str) -> Result<Self> {
        let mut literal = Literal { rest: text };
        let (mut descr, mut fortran_order, mut shape) = (None, None, None);
        literal.expect('{')?;
        while !literal.accept('}') {
            let key = literal.string()?;
            literal.expect(':')?;
            match key {
                "descr" => {
                    if literal.peek() == Some('[') {
                        bail!("arrays of structures are not supported");
                    }
                    descr = Some(literal.string()?.to_owned());
                }
                "fortran_order" => fortran_order = Some(literal.boolean()?),
                "shape" => shape = Some(literal.tuple()?),
                other => bail!("unknown key `{}` in the header", other.escape_debug()),
            }
            if !literal.accept(',') {
                literal.expect('}')?;
                break;
            }
        }
        if literal.peek().is_some() {
            bail!("text after the header's dictionary");
        }
        Ok(Self {
            descr: descr.context("the header has no `descr`")?,
            fortran_order: fortran_order.context("the header has no `fortran_order`")?,
            shape: shape.context("the header has no `shape`")?,
        })
    }
}

/// The few Python literals a header is made of.
struct Literal<'a> {
    rest: &'a str,
}

impl<'a> Literal<'a> {
    fn peek(&mut self) -> Option<char> {
        self.rest = self.rest.trim_start();
        self.rest.chars().next()
    }

    fn accept(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        if found {
            self.rest = &self.rest[wanted.len_utf8()..];
        }
        found
    }

    fn expect(&mut self, wanted: char) -> Result<()> {
        if !self.accept(wanted) {
            bail!("damaged header: `{wanted}` expected");
        }
        Ok(())
    }

    fn string(&mut self) -> Result<&'a str> {
        let quote = match self.peek() {
            Some(quote @ ('\'' | '"')) => quote,
            _ => bail!("damaged header: a string expected"),
        };
        let body = &self.rest[1..];
        let end = body
            .find(quote)
            .context("damaged header: a string without end")?;
        self.rest = &body[end + 1..];
        Ok(&body[..end])
    }

    fn boolean(&mut self) -> Result<bool> {
        self.peek();
        for (word, value) in [("True", true), ("False", false)] {
            if let Some(rest) = self.rest.strip_prefix(word) {
                self.rest = rest;
                return Ok(value);
            }
        }
        bail!("damaged header: True or False expected")
    }

    fn tuple(&mut self) -> Result<Vec<usize>> {
        let mut items = Vec::new();
        self.expect('(')?;
        while !self.accept(')') {
            if items.len() == MAX_DIMENSIONS {
                bail!("more than {MAX_DIMENSIONS} dimensions");
            }
            self.peek();
            let digits = self
                .rest
                .find(|c: char| !c.is_ascii_digit())
                .unwrap_or(self.rest.len());
            let item = self.rest[..digits]
                .parse()
                .context("damaged header: a dimension is no whole number")?;
            items.push(item);
            self.rest = &self.rest[digits..];
            // Python 2 wrote its long integers so.
            self.accept('L');
            if !self.accept(',') {
                self.expect(')')?;
                break;
            }
        }
        Ok(items)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(version: u8, header: &str, data: &[u8]) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend([version, 0]);
        if version == 1 {
            bytes.extend(u16::try_from(header.len()).unwrap().to_le_bytes());
        } else {
            bytes.extend(u32::try_from(header.len()).unwrap().to_le_bytes());
        }
        bytes.extend(header.as_bytes());
        bytes.extend(data);
        bytes
    }

    fn message(bytes: &[u8]) -> String {
        format!("{:#}", parse(bytes).unwrap_err())
    }

    #[test]
    fn what_is_written_is_read_back_in_every_type_and_rank() {
        let types = [
            DType::F64,
            DType::F32,
            DType::F16,
            DType::I8,
            DType::U8,
            DType::I16,
            DType::U16,
            DType::I32,
            DType::U32,
            DType::I64,
            DType::U64,
            DType::Bool,
        ];
        for dtype in types {
            for shape in [vec![], vec![6], vec![2, 3], vec![0, 4], vec![1, 2, 3, 1]] {
                let count: usize = shape.iter().product();
                let array = Array {
                    dtype,
                    data: (0..count * dtype.size()).map(|i| (i % 2) as u8).collect(),
                    shape,
                };
                let mut bytes = Vec::new();
                serialize(&mut bytes, &array).unwrap();
                assert_eq!((bytes.len() - array.data.len()) % 64, 0);
                assert_eq!(parse(&*bytes).unwrap(), array);
            }
        }
    }

    #[test]
    fn versions_two_and_three_and_old_spellings_are_read() {
        let data: Vec<u8> = (0..8).collect();
        for version in [2, 3] {
            let header = "{\"shape\": (2L, 1L), 'fortran_order': False, 'descr': '<i4'}  \n";
            let array = parse(&*file(version, header, &data)).unwrap();
            assert_eq!((array.dtype, array.shape), (DType::I32, vec![2, 1]));
        }
    }

    #[test]
    fn big_endian_values_are_turned_around() {
        let header = "{'descr': '>u2', 'fortran_order': False, 'shape': (2,), }\n";
        let array = parse(&*file(1, header, &[1, 2, 3, 4])).unwrap();
        assert_eq!(array.data, [2, 1, 4, 3]);
    }

    #[test]
    fn bfloat16_is_written_as_float32_which_holds_it_exactly() {
        let array = Array {
            dtype: DType::BF16,
            shape: vec![1],
            data: vec![0x49, 0x40],
        };
        let mut bytes = Vec::new();
        serialize(&mut bytes, &array).unwrap();
        let back = parse(&*bytes).unwrap();
        assert_eq!(back.dtype, DType::F32);
        assert_eq!(back.data, 3.140625_f32.to_le_bytes());
        assert_eq!(back.convert(DType::BF16), array);
    }

    #[test]
    fn hostile_headers_are_refused_with_the_reason() {
        struct Case(&'static str, &'static str);
        let huge = "{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4)}";
        let lying = "{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776,)}";
        let cases = [
            Case(huge, "the shape's product overflows"),
            Case(
                lying,
                "the header promises 4398046511104 bytes of data, the file has 4",
            ),
            Case("", "damaged header: `{` expected"),
            Case("{'descr", "damaged header: a string without end"),
            Case("{'descr': '<f4'", "damaged header: `}` expected"),
            Case(
                "{'fortran_order': False, 'shape': ()}",
                "the header has no `descr`",
            ),
            Case(
                "{'descr': [('a', '<f4')]}",
                "arrays of structures are not supported",
            ),
            Case(
                "{'descr': '<c8', 'fortran_order': False, 'shape': ()}",
                "element type `<c8` is not a real number that Metal knows",
            ),
            Case("{'shape': (-1,)}", "damaged header: a dimension is no"),
            Case("{'é': 1}", "unknown key `é`"),
            Case("{}x", "text after the header's dictionary"),
        ];
        for Case(header, expected) in cases {
            let found = message(&file(1, header, &[0; 4]));
            assert!(found.contains(expected), "{header}: {found}");
        }
        let fortran = "{'descr': '<f4', 'fortran_order': True, 'shape': (1,)}";
        assert!(message(&file(1, fortran, &[0; 4])).contains("ascontiguousarray"));
        assert!(message(b"PK\x03\x04....").contains("does not begin with"));
        assert!(message(b"").contains("shorter than"));
        assert!(message(b"\x93NUMPY\x09\x00\x10\x00").contains("unknown .npy version 9"));
        assert!(message(b"\x93NUMPY\x02\x00\xff\xff\xff\xff").contains("longer than the"));
    }

    #[test]
    fn no_damage_to_a_file_causes_a_panic() {
        let header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n";
        let good = file(1, header, &[7; 24]);
        for end in 0..good.len() {
            assert!(parse(&good[..end]).is_err());
        }
        let mut state = 1_u64;
        let mut next = |below: usize| {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (state >> 33) as usize % below
        };
        for _ in 0..20_000 {
            let mut bytes = good.clone();
            for _ in 0..=next(4) {
                let at = next(bytes.len());
                bytes[at] = next(256) as u8;
            }
            if let Ok(array) = parse(&*bytes) {
                assert!(array.data.len() <= bytes.len());
            }
        }
    }
}
