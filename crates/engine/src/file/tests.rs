mod fixture;
mod fuzz;

use std::io::Cursor;

use half::{bf16, f16};

use super::*;
use crate::{Element, npz, safetensors};

fn npy_of(bytes: &[u8]) -> Result<Tensor> {
    npy::tensor(
        "load_npy",
        &mut Reader::new(bytes, bytes.len() as u64, Path::new("x.npy")),
    )
}

fn array_of(bytes: &[u8]) -> Result<npy::Array> {
    npy::array(&mut Reader::new(
        bytes,
        bytes.len() as u64,
        Path::new("x.npy"),
    ))
}

/// A `.npy` file of version 1.
fn npy_file(header: &str, data: &[u8]) -> Vec<u8> {
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    bytes
}

fn npz_of(bytes: &[u8]) -> Result<Vec<(String, Tensor)>> {
    npz::archive(Cursor::new(bytes), bytes.len() as u64, Path::new("x.npz"))
}

fn safetensors_of(bytes: &[u8]) -> Result<safetensors::Safetensors> {
    let path = Path::new("x.safetensors");
    safetensors::file(Reader::new(Cursor::new(bytes), bytes.len() as u64, path))
}

fn check<T: Element>(tensor: &Tensor, dims: &[usize], values: &[T]) {
    assert_eq!(**tensor.shape(), *dims);
    assert_eq!(tensor.to_vec::<T>().unwrap(), values);
}

/// One tensor of every type, of several shapes and layouts.
fn all_types() -> Vec<(String, Tensor)> {
    let t = |name: &str, tensor| (name.to_owned(), tensor);
    vec![
        t("bool", Tensor::from_slice(&[true, false, true], [3])),
        t("u8", Tensor::from_slice(&[1_u8, 255], [2, 1])),
        t("i8", Tensor::from_slice(&[-128_i8, 127], [1, 2])),
        t("u16", Tensor::from_slice(&[65535_u16], [])),
        t("i16", Tensor::from_slice(&[-32768_i16, 1], [2])),
        t("u32", Tensor::from_slice(&[u32::MAX, 1], [2])),
        t("i32", Tensor::from_slice(&[1, 2, 3, 4, 5, 6], [2, 3]).t()),
        t("u64", Tensor::from_slice(&[u64::MAX], [1, 1, 1])),
        t("i64", Tensor::from_slice(&[i64::MIN, 7], [2])),
        t(
            "f16",
            Tensor::from_slice(&[f16::MAX, f16::NEG_INFINITY], [2]),
        ),
        t(
            "f32",
            Tensor::from_slice(&[0.1_f32; 6], [6]).narrow(0, 2, 3),
        ),
        t("f64", Tensor::from_slice(&[1e300, -0.0], [2])),
        t("empty", Tensor::from_slice(&[0.0_f32; 0], [0, 3])),
        t("é, \"name\"\n", Tensor::full([2, 2], 5, DType::U8)),
    ]
}

fn assert_same(left: &[(String, Tensor)], right: &[(String, Tensor)]) {
    assert_eq!(left.len(), right.len());
    for ((name, a), (other, b)) in left.iter().zip(right) {
        assert_eq!(name, other);
        assert_eq!((a.dtype(), a.shape()), (b.dtype(), b.shape()), "{name}");
        let (a, b) = (Data::new(a).unwrap(), Data::new(b).unwrap());
        assert_eq!(a.bytes(), b.bytes(), "{name}");
    }
}

#[test]
fn reads_arrays_written_by_numpy() {
    check(
        &npy_of(fixture::MATRIX_I32).unwrap(),
        &[2, 3],
        &[1, 2, 3, 4, 5, 6],
    );
    let fortran = npy_of(fixture::FORTRAN_BIG_ENDIAN).unwrap();
    check(&fortran, &[2, 3], &[1.5_f32, -2.0, 3.0, 4.0, 5.0, 6e10]);
    assert_eq!(fortran.layout().strides(), [1, 2]);
    check(
        &npy_of(fixture::VERSION_2).unwrap(),
        &[],
        &[f16::from_f32(1.25)],
    );
    check(&npy_of(fixture::VERSION_3).unwrap(), &[2], &[true, false]);
}

#[test]
fn reads_archives_written_by_numpy() {
    for bytes in [fixture::STORED, fixture::DEFLATED] {
        let arrays = npz_of(bytes).unwrap();
        let names: Vec<_> = arrays.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
        check(&arrays[0].1, &[3], &[0_i64, 1, 2]);
        check(&arrays[1].1, &[2, 2], &[1.0, 2.0, 3.0, 4.0]);
    }
}

#[test]
fn reads_safetensors_written_by_the_reference_library() {
    let file = safetensors_of(fixture::SAFETENSORS).unwrap();
    let names: Vec<_> = file.tensors.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    check(file.get("a").unwrap(), &[2, 1], &[0.5_f32, 1.5]);
    check(file.get("b").unwrap(), &[3], &[1_u8, 2, 3]);
    assert_eq!(file.metadata["format"], "np");
}

#[test]
fn npy_files_are_byte_identical_to_numpys() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.npy");
    let x = Tensor::from_slice(&[1, 4, 2, 5, 3, 6], [3, 2]).t();
    x.save_npy(&path).unwrap();
    assert_eq!(fs::read(&path).unwrap(), fixture::MATRIX_I32);
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
}

#[test]
fn arrays_of_every_dtype_and_rank_round_trip_as_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.npy");
    for dtype in DType::ALL {
        for shape in [vec![], vec![6], vec![2, 3], vec![0, 4], vec![1; 64]] {
            let count = shape.iter().product::<usize>() * dtype.size();
            let array = npy::Array {
                dtype,
                shape,
                data: (0..count).map(|i| (i % 2) as u8).collect(),
            };
            let written = npy::write(&path, &array);
            if dtype == DType::BF16 {
                assert!(matches!(written, Err(Error::BadDType { .. })));
                continue;
            }
            written.unwrap();
            assert_eq!(npy::read(&path).unwrap(), array);
        }
    }
    let wrong = npy::Array {
        dtype: DType::U16,
        shape: vec![2],
        data: vec![0; 3],
    };
    assert!(matches!(
        npy::write(&path, &wrong),
        Err(Error::Invalid { .. })
    ));
    let half = npy_file(
        "{'descr':'<V2','fortran_order':False,'shape':(1,)}",
        &[1, 2],
    );
    let half = array_of(&half).unwrap();
    assert_eq!((half.dtype, half.data), (DType::BF16, vec![1, 2]));
}

#[test]
fn unsupported_arrays_are_rejected_with_the_reason() {
    let message = |bytes: &[u8]| array_of(bytes).unwrap_err().to_string();
    for (header, reason) in [
        (
            "{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4)}",
            "the array is larger than the address space",
        ),
        (
            "{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776,)}",
            "the data needs 4398046511104 bytes, but only 4 are left",
        ),
        (
            "{'descr': '<f4', 'fortran_order': True, 'shape': (1,)}",
            "the array is in Fortran order; save it in C order with `numpy.ascontiguousarray(array)`",
        ),
        (
            "{'descr': '<c8', 'fortran_order': False, 'shape': ()}",
            "type \"<c8\" is not supported; bool, 8 to 64-bit integers and 16 to 64-bit floats are",
        ),
        (
            "{'fortran_order': False, 'shape': ()}",
            "header: descr is missing",
        ),
        ("{'descr", "header: a string without end"),
        ("{}x", "header: more after the dictionary"),
    ] {
        assert_eq!(
            message(&npy_file(header, &[0; 4])),
            format!("x.npy: {reason}")
        );
    }
    let shape = vec!["1"; 65].join(",");
    let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({shape})}}");
    assert!(message(&npy_file(&header, &[0; 4])).contains("more than 64 dimensions"));
    assert!(message(b"PK\x03\x04....").contains("does not begin with"));
    assert!(message(b"").contains("needs 6 bytes"));
    assert!(message(b"\x93NUMPY\x09\x00\x10\x00").contains(".npy version 9.0 is unknown"));
}

#[test]
fn every_dtype_round_trips_through_every_format() {
    let directory = tempfile::tempdir().unwrap();
    let tensors = all_types();
    for (name, tensor) in &tensors {
        let path = directory.path().join("one.npy");
        tensor.save_npy(&path).unwrap();
        let back = (name.clone(), Tensor::load_npy(&path).unwrap());
        assert_same(&[(name.clone(), tensor.clone())], &[back]);
    }
    let path = directory.path().join("all.npz");
    npz::save(&path, &tensors).unwrap();
    assert_same(&npz::load(&path).unwrap(), &tensors);
    npz::save_compressed(&path, &tensors).unwrap();
    assert_same(&npz::load(&path).unwrap(), &tensors);
    npz::save(&path, &[] as &[(&str, &Tensor)]).unwrap();
    assert!(npz::load(&path).unwrap().is_empty());

    let mut tensors = tensors;
    let values = [bf16::MAX, bf16::from_f32(0.1)];
    tensors.push(("bf16".to_owned(), Tensor::from_slice(&values, [2])));
    let path = directory.path().join("all.safetensors");
    let metadata = [("a \"key\"", "é\n"), ("", "")];
    let metadata = metadata.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    safetensors::save_with_metadata(&path, &tensors, &metadata).unwrap();
    let back = safetensors::load(&path).unwrap();
    assert_same(&back.tensors, &tensors);
    assert_eq!(back.metadata, metadata);
    safetensors::save(&path, &[] as &[(&str, &Tensor)]).unwrap();
    assert!(safetensors::load(&path).unwrap().tensors.is_empty());
}

#[test]
fn zip64_archives_round_trip() {
    // With a limit of 0, every value needs a ZIP64 field.
    let mut writer = zip::ZipWriter::new(Vec::new(), 0);
    for name in ["a.npy", "b.npy"] {
        let method = zip::CompressionMethod::Stored;
        writer.add(name, method, &[fixture::MATRIX_I32]).unwrap();
    }
    let bytes = writer.finish().unwrap();
    let arrays = npz_of(&bytes).unwrap();
    assert_eq!(arrays.len(), 2);
    check(&arrays[1].1, &[2, 3], &[1, 2, 3, 4, 5, 6]);
}

#[test]
fn failed_writes_leave_no_files() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x");
    let x = Tensor::from_slice(&[bf16::ONE], [1]);
    assert_eq!(
        x.save_npy(&path).unwrap_err().to_string(),
        "save_npy: not defined for bf16: NumPy has no such type; convert with `cast`"
    );
    assert!(npz::save(&path, &[("x", &x)]).is_err());
    let y = Tensor::from_slice(&[1], [1]);
    let twice = [("y", &y), ("y", &y)];
    for result in [npz::save(&path, &twice), safetensors::save(&path, &twice)] {
        assert!(matches!(result, Err(Error::Invalid { .. })));
    }
    assert!(safetensors::save(&path, &[("__metadata__", &y)]).is_err());
    let failed = Tensor::from_slice(&[1], [2]);
    assert!(failed.save_npy(&path).is_err());
    assert!(npz::save(&path, &[("a", &failed)]).is_err());
    assert!(y.save_npy(directory.path().join("no/such/place")).is_err());
    assert!(y.save_npy("/").is_err());
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
    assert!(Tensor::load_npy(&path).is_err());
    assert!(Tensor::load_npy(directory.path()).is_err());
}

#[test]
fn oversized_headers_are_rejected_without_allocation() {
    let header = |shape: &str| format!("{{'descr':'<f8','fortran_order':False,'shape':{shape}}}");
    let shaped = |shape: &str| npy_of(&npy_file(&header(shape), &[]));
    assert!(matches!(
        shaped("(1000000000000,)"),
        Err(Error::File { .. })
    ));
    assert!(matches!(
        shaped("(4294967296, 4294967296)"),
        Err(Error::SizeOverflow { .. })
    ));
    assert!(matches!(
        shaped("(0, 18446744073709551615)"),
        Err(Error::SizeOverflow { .. })
    ));
    assert!(matches!(
        shaped("(1,1,1,1,1,1,1,1,1)"),
        Err(Error::RankTooLarge { rank: 9, .. })
    ));
    assert!(shaped("(0, 3)").is_ok());
    let mut long = b"\x93NUMPY\x02\x00".to_vec();
    long.extend(u32::MAX.to_le_bytes());
    assert!(matches!(npy_of(&long), Err(Error::File { .. })));
    let mut long = u64::MAX.to_le_bytes().to_vec();
    long.extend(b"{}");
    assert!(matches!(safetensors_of(&long), Err(Error::File { .. })));
}

#[test]
fn rejects_inconsistent_safetensors() {
    let file = |header: &str, data: usize| {
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header.as_bytes());
        bytes.resize(bytes.len() + data, 0);
        safetensors_of(&bytes)
    };
    let one = |offsets: &str| format!(r#"{{"dtype":"U8","shape":[2],"data_offsets":{offsets}}}"#);
    let two = |a: &str, b: &str| format!(r#"{{"a":{},"b":{}}}"#, one(a), one(b));
    assert!(file(&two("[0,2]", "[2,4]"), 4).is_ok());
    assert!(file(&two("[2,4]", "[0,2]"), 4).is_ok());
    for (what, header, data) in [
        ("overlap", two("[0,2]", "[1,3]"), 3),
        ("the same bytes", two("[0,2]", "[0,2]"), 2),
        ("a gap", two("[0,2]", "[3,5]"), 5),
        ("data left over", two("[0,2]", "[2,4]"), 5),
        ("too little data", two("[0,2]", "[2,4]"), 3),
        ("the wrong way round", two("[2,0]", "[2,4]"), 4),
        ("wrong size", two("[0,1]", "[1,4]"), 4),
        ("twice", two("[0,2]", "[2,4]").replace("\"b\"", "\"a\""), 4),
        ("negative", two("[0,2]", "[-2,4]"), 4),
        ("huge", two("[0,2]", "[2,18446744073709551615]"), 4),
        ("no type", two("[0,2]", "[2,4]").replace("U8", "U7"), 4),
        (
            "small letters",
            two("[0,2]", "[2,4]").replace("U8", "u8"),
            4,
        ),
        ("a float", two("[0,2]", "[2.0,4]"), 4),
        ("three offsets", two("[0,2]", "[2,4,4]"), 4),
        ("another key", two("[0,2]", "[2,4],\"x\":1"), 4),
        ("a key twice", two("[0,2]", "[2,4],\"dtype\":\"U8\""), 4),
        (
            "a list for a tensor",
            r#"{"a":["U8",[2],[0,2]]}"#.to_owned(),
            2,
        ),
        (
            "notes twice",
            r#"{"__metadata__":{},"__metadata__":{}}"#.to_owned(),
            0,
        ),
        (
            "a note twice",
            r#"{"__metadata__":{"a":"","a":""}}"#.to_owned(),
            0,
        ),
        ("a list of notes", r#"{"__metadata__":[]}"#.to_owned(), 0),
        (
            "no character",
            r#"{"__metadata__":{"a":"\ud83d"}}"#.to_owned(),
            0,
        ),
        (
            "a control character",
            "{\"__metadata__\":{\"a\":\"\n\"}}".to_owned(),
            0,
        ),
        ("more after the end", "{}{}".to_owned(), 0),
        ("a list", "[]".to_owned(), 0),
        ("no JSON", "{".to_owned(), 0),
        ("a number", r#"{"a":1}"#.to_owned(), 0),
        ("no text", r#"{"__metadata__":{"a":1}}"#.to_owned(), 0),
        ("deep", "[".repeat(100_000), 0),
    ] {
        let result = file(&header, data);
        assert!(matches!(result, Err(Error::File { .. })), "{what}");
    }
    let huge = two("[0,2]", "[2,4]").replace("[2],", "[4294967296,4294967296],");
    assert!(matches!(file(&huge, 4), Err(Error::SizeOverflow { .. })));
}

#[test]
fn nonzero_bytes_of_bool_become_true() {
    let mut bytes = fixture::VERSION_3.to_vec();
    *bytes.last_mut().unwrap() = 0xff;
    check(&npy_of(&bytes).unwrap(), &[2], &[true, true]);
}

#[test]
fn checksums_detect_damaged_archives() {
    // Damage the last element of the last array.
    let at = fixture::STORED
        .windows(8)
        .rposition(|w| w == 4.0_f64.to_le_bytes())
        .unwrap();
    let mut bytes = fixture::STORED.to_vec();
    bytes[at] ^= 1;
    let error = npz_of(&bytes).unwrap_err();
    assert_eq!(error.to_string(), "x.npz: b.npy: the checksum is wrong");
}

#[test]
fn mapped_tensors_round_trip_aligned_or_not() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.safetensors");
    let tensors = all_types();
    safetensors::save(&path, &tensors).unwrap();
    let mapped = map::tests::map_unchanged(&path);
    assert_same(&mapped.tensors, &tensors);
    // A foreign file, in which a tensor of 4-byte elements follows one of 3 bytes.
    let header = r#"{"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},
"b":{"dtype":"I32","shape":[1],"data_offsets":[3,7]}}"#;
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend([1, 2, 3, 4, 0, 0, 0]);
    fs::write(&path, bytes).unwrap();
    let mapped = map::tests::map_unchanged(&path);
    check(mapped.get("a").unwrap(), &[3], &[1_u8, 2, 3]);
    check(mapped.get("b").unwrap(), &[1], &[4]);
}
