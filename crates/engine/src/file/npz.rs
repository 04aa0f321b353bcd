//! NumPy's `.npz`: several named arrays, a ZIP archive of `.npy` files.

use std::borrow::Borrow;
use std::fs::File;
use std::io::{BufReader, Read, Seek, Write};
use std::path::Path;

use flate2::read::DeflateDecoder;

use super::zip::{Archive, CompressionMethod};
use super::{Data, Reader, bad, distinct, npy, open, write, zip};
use crate::{Error, Result, Tensor, graph};

/// Reads all arrays of an archive written by `numpy.savez`, `numpy.savez_compressed` or [`save`], in the order of the
/// archive.
pub fn load(path: impl AsRef<Path>) -> Result<Vec<(String, Tensor)>> {
    let path = path.as_ref();
    let (file, len) = open(path)?;
    archive::<File>(file, len, path)
}

/// Reads an archive of `len` bytes.
pub(super) fn archive<R: Read + Seek>(
    from: R,
    len: u64,
    path: &Path,
) -> Result<Vec<(String, Tensor)>> {
    let mut archive = Archive::new(BufReader::new(from), len, path)?;
    let members = archive.members()?;
    let mut out = Vec::with_capacity(members.len());
    for member in &members {
        let Some(name) = member.name.strip_suffix(".npy") else {
            return Err(bad(
                path,
                format_args!("{:?} is not a .npy file", member.name),
            ));
        };
        let stored = archive.open(member)?;
        let tensor = match member.method {
            CompressionMethod::Stored => entry(stored, member, path)?,
            CompressionMethod::Deflated => entry(DeflateDecoder::new(stored), member, path)?,
        };
        out.push((name.to_owned(), tensor));
    }
    distinct("npz::load", out.iter().map(|(name, _)| name.as_str()))
        .map_err(|error| bad(path, error))?;
    Ok(out)
}

/// Reads a member to its end, and verifies its checksum.
fn entry(from: impl Read, member: &zip::Member, path: &Path) -> Result<Tensor> {
    let name = &member.name;
    let within = |error| match error {
        Error::File { reason, .. } => bad(path, format_args!("{name}: {reason}")),
        other => other,
    };
    let from = flate2::CrcReader::new(from);
    let mut reader = Reader::new(from, member.size, path);
    let tensor = npy::tensor("npz::load", &mut reader).map_err(within)?;
    // The checksum includes bytes after the array.
    let mut rest = [0; 4096];
    while reader.left > 0 {
        let len = reader.left.min(rest.len() as u64) as usize;
        reader.fill(&mut rest[..len], "the rest").map_err(within)?;
    }
    if reader.from.crc().sum() != member.crc {
        return Err(bad(path, format_args!("{name}: the checksum is wrong")));
    }
    Ok(tensor)
}

/// Writes named arrays, not compressed, as `numpy.savez` does.
///
/// ```no_run
/// # use bessemer::{DType, Tensor, npz};
/// let (a, b) = (Tensor::zeros([2], DType::F32), Tensor::ones([3], DType::I64));
/// npz::save("both.npz", &[("a", &a), ("b", &b)])?;
/// npz::save("again.npz", &npz::load("both.npz")?)?;
/// # Ok::<(), bessemer::Error>(())
/// ```
pub fn save(
    path: impl AsRef<Path>,
    tensors: &[(impl AsRef<str>, impl Borrow<Tensor>)],
) -> Result<()> {
    save_as(path.as_ref(), tensors, CompressionMethod::Stored)
}

/// Writes named arrays, compressed, as `numpy.savez_compressed` does.
pub fn save_compressed(
    path: impl AsRef<Path>,
    tensors: &[(impl AsRef<str>, impl Borrow<Tensor>)],
) -> Result<()> {
    save_as(path.as_ref(), tensors, CompressionMethod::Deflated)
}

fn save_as(
    path: &Path,
    tensors: &[(impl AsRef<str>, impl Borrow<Tensor>)],
    method: CompressionMethod,
) -> Result<()> {
    distinct("npz::save", tensors.iter().map(|(name, _)| name.as_ref()))?;
    let all: Vec<&Tensor> = tensors.iter().map(|(_, t)| t.borrow()).collect();
    graph::eval(&all)?;
    // Unsupported types are an error before anything is written.
    for tensor in &all {
        npy::header("npz::save", tensor.dtype(), tensor.shape())?;
    }
    write(path, |file| {
        let mut archive = zip::ZipWriter::new(file, zip::MIN_ZIP64_VALUE);
        for (name, tensor) in tensors {
            let data = Data::new(tensor.borrow())?;
            let tensor = tensor.borrow();
            let header = npy::header("npz::save", tensor.dtype(), tensor.shape())?;
            let name = format!("{}.npy", name.as_ref());
            archive
                .add(&name, method, &[&header, data.bytes()])
                .map_err(|e| bad(path, format_args!("{name}: {e}")))?;
        }
        let end = archive.finish().and_then(Write::flush);
        end.map_err(|e| bad(path, e))
    })
}
