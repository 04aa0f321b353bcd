//! Valid files, and files with one error each. Random damage is tested in `tests/hostile`.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::*;

/// Builder of GGUF files, which may be invalid.
#[derive(Clone, Default)]
struct Raw(Vec<u8>);

impl Raw {
    fn new(version: u32, tensors: u64, keys: u64) -> Self {
        Self(b"GGUF".to_vec()).u32(version).u64(tensors).u64(keys)
    }

    fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }

    fn u32(self, v: u32) -> Self {
        self.bytes(&v.to_le_bytes())
    }

    fn u64(self, v: u64) -> Self {
        self.bytes(&v.to_le_bytes())
    }

    fn string(self, text: &str) -> Self {
        self.u64(text.len() as u64).bytes(text.as_bytes())
    }

    fn tensor(mut self, name: &str, axes: &[u64], format: u32, offset: u64) -> Self {
        self = self.string(name).u32(axes.len() as u32);
        for &axis in axes {
            self = self.u64(axis);
        }
        self.u32(format).u64(offset)
    }

    /// The data, aligned.
    fn data(mut self, len: usize) -> Self {
        self.0.resize(self.0.len().next_multiple_of(32) + len, 7);
        self
    }
}

fn file(dir: &TempDir, name: &str, bytes: &[u8]) -> PathBuf {
    let path = dir.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

fn message(bytes: &[u8]) -> String {
    let dir = TempDir::new().unwrap();
    let path = file(&dir, "m", bytes);
    match Model::open(&path) {
        Ok(model) => panic!("opened: {model:?}"),
        Err(error) => error.to_string(),
    }
}

fn wrong_gguf(raw: Raw, expected: &str) {
    let message = message(&raw.0);
    assert!(message.contains(expected), "{message}");
}

fn safetensors(header: &str, data: usize) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.resize(bytes.len() + data, 1);
    bytes
}

#[test]
fn written_files_are_read_back() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("m.gguf");
    let mut metadata = Metadata::default();
    let values = [
        ("u8", Value::U8(255)),
        ("i8", Value::I8(-1)),
        ("u16", Value::U16(1)),
        ("i16", Value::I16(-2)),
        ("u32", Value::U32(3)),
        ("i32", Value::I32(-3)),
        ("u64", Value::U64(u64::MAX)),
        ("i64", Value::I64(i64::MIN)),
        ("f32", Value::F32(0.5)),
        ("f64", Value::F64(-0.25)),
        ("bool", Value::Bool(true)),
        ("text", Value::String("grüß".to_owned())),
        ("list.f32", Value::Array(Array::F32(vec![1.0, 2.0]))),
        ("list.bool", Value::Array(Array::Bool(vec![true, false]))),
        ("list.i8", Value::Array(Array::I8(vec![-1]))),
        ("list.none", Value::Array(Array::U16(Vec::new()))),
        (
            "list.text",
            Value::Array(Array::String(["", "a", "ß"].into_iter().collect())),
        ),
    ];
    for (key, value) in &values {
        metadata.insert((*key).to_owned(), value.clone()).unwrap();
    }
    let new = |name: &str, format, shape: &[usize]| NewTensor {
        name: name.to_owned(),
        format,
        shape: shape.to_vec(),
    };
    let tensors = [
        new("a.weight", Format::F32, &[3]),
        new("b.weight", Format::Q4_0, &[2, 64]),
    ];
    let mut writer = GgufWriter::create(&path, &metadata, &tensors).unwrap();
    let a: Vec<u8> = [1.5_f32, -2.0, 0.0]
        .iter()
        .flat_map(|v| v.to_le_bytes())
        .collect();
    writer.push(&a).unwrap();
    assert!(!path.exists(), "a file that is not complete has its name");
    let b: Vec<u8> = (0..72).collect();
    writer.push(&b).unwrap();
    writer.finish().unwrap();

    let model = Model::open(&path).unwrap();
    let read: Vec<_> = model
        .metadata()
        .iter()
        .map(|(k, v)| (k, v.clone()))
        .collect();
    assert_eq!(read, values);
    assert_eq!(
        model.tensor("a.weight").unwrap().to_f32().unwrap(),
        [1.5, -2.0, 0.0]
    );
    let view = model.tensor("b.weight").unwrap();
    assert_eq!(
        (view.format(), view.shape(), view.bytes()),
        (Format::Q4_0, &[2, 64][..], &b[..])
    );
    let row = view.rows(1..2).unwrap();
    assert_eq!((row.shape(), row.bytes()), (&[1, 64][..], &b[36..]));
    drop(model);
    assert_eq!(row.bytes(), &b[36..], "a view keeps the file");
}

#[test]
fn an_abandoned_writer_leaves_nothing() {
    let dir = TempDir::new().unwrap();
    let tensor = NewTensor {
        name: "a".to_owned(),
        format: Format::F32,
        shape: vec![2],
    };
    let create = || {
        GgufWriter::create(
            dir.path().join("m"),
            &Metadata::default(),
            std::slice::from_ref(&tensor),
        )
    };
    assert!(create().unwrap().push(&[0; 7]).is_err());
    assert!(create().unwrap().finish().is_err());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn gguf_headers_are_validated() {
    let max = u64::MAX;
    wrong_gguf(Raw::new(1, 0, 0), "version 1 is not supported");
    wrong_gguf(Raw::new(3_u32.swap_bytes(), 0, 0), "big-endian");
    wrong_gguf(Raw::new(4, 0, 0), "version 4");
    wrong_gguf(
        Raw(b"GGUF\x03\0\0\0".to_vec()),
        "the number of tensors needs 8 bytes",
    );
    wrong_gguf(Raw::new(3, max, 0), "tensors cannot fit");
    wrong_gguf(Raw::new(3, 0, max), "keys cannot fit");
    wrong_gguf(Raw::new(3, 0, 1 << 40), "keys cannot fit");
    let key = Raw::new(3, 0, 1).string("k");
    let padding = [0; 32];
    wrong_gguf(key.clone().u32(13).bytes(&padding), "unknown type 13");
    wrong_gguf(key.clone().u32(7).bytes(&[2]), "not true or false");
    wrong_gguf(key.clone().u32(8).u64(max).bytes(&padding), "a value needs");
    wrong_gguf(key.clone().u32(8).u64(2).bytes(&[0xff, 0xff]), "not UTF-8");
    wrong_gguf(
        key.clone().u32(9).u32(6).u64(max / 2).bytes(&padding),
        "elements of an array cannot",
    );
    wrong_gguf(
        key.clone().u32(9).u32(8).u64(1 << 33).bytes(&padding),
        "strings of an array cannot",
    );
    wrong_gguf(
        key.clone().u32(9).u32(7).u64(1 << 33).bytes(&padding),
        "elements of an array cannot",
    );
    wrong_gguf(
        key.clone().u32(9).u32(9).u64(1).bytes(&padding),
        "array of arrays",
    );
    wrong_gguf(key.u32(9).u32(99).u64(1).bytes(&padding), "unknown type 99");
    wrong_gguf(Raw::new(3, 0, 1).u64(max).bytes(&padding), "a key needs");
    wrong_gguf(
        Raw::new(3, 0, 2)
            .string("k")
            .u32(0)
            .bytes(&[1])
            .string("k")
            .u32(0)
            .bytes(&[1]),
        "`k`: is defined twice",
    );
    for alignment in [0, 3, 1 << 30] {
        let raw = Raw::new(3, 0, 1)
            .string("general.alignment")
            .u32(4)
            .u32(alignment);
        wrong_gguf(raw, "not a power of two");
    }
    let text = Raw::new(3, 0, 1)
        .string("general.alignment")
        .u32(8)
        .string("32");
    wrong_gguf(text, "is not a natural number");
}

#[test]
fn gguf_tensors_are_validated() {
    struct Case(&'static [u64], u32, u64, &'static str);
    let cases = [
        Case(&[1; 5], 0, 0, "5 axes"),
        Case(&[0], 0, 0, "length 0"),
        Case(&[u64::MAX, u64::MAX], 0, 0, "not possible"),
        Case(&[1 << 62, 4], 0, 0, "not possible"),
        Case(&[48], 2, 0, "blocks have 32"),
        Case(&[4], 4, 0, "format 4 is not known"),
        Case(&[4], 0, 3, "not aligned"),
        Case(&[4], 0, u64::MAX - 31, "past the end"),
        Case(&[4], 0, 64, "past the end"),
        Case(&[100], 0, 0, "past the end"),
    ];
    for Case(axes, format, offset, expected) in cases {
        let raw = Raw::new(3, 1, 0).tensor("t", axes, format, offset).data(64);
        wrong_gguf(raw, expected);
    }
    let two = |name: &str, offset| {
        let raw = Raw::new(3, 2, 0).tensor("t", &[16], 0, 0);
        raw.tensor(name, &[4], 0, offset).data(128)
    };
    wrong_gguf(two("u", 32), "`u`: overlaps with `t`");
    wrong_gguf(two("t", 64), "`t`: is defined twice");
    // Version 2 has the same layout.
    let dir = TempDir::new().unwrap();
    let mut good = two("u", 64);
    good.0[4] = 2;
    Model::open(file(&dir, "m", &good.0)).unwrap();
}

#[test]
fn every_truncation_of_a_gguf_file_is_an_error() {
    let whole = Raw::new(3, 1, 2)
        .string("a")
        .u32(9)
        .u32(8)
        .u64(2)
        .string("x")
        .string("yz")
        .string("b")
        .u32(12)
        .u64(0)
        .tensor("t", &[4, 2], 0, 0)
        .data(32);
    let dir = TempDir::new().unwrap();
    Model::open(file(&dir, "m", &whole.0)).unwrap();
    for len in 0..whole.0.len() {
        let path = file(&dir, "m", &whole.0[..len]);
        assert!(Model::open(path).is_err(), "{len} bytes");
    }
}

#[test]
fn safetensors_headers_are_validated() {
    struct Case(&'static str, usize, &'static str);
    let cases = [
        Case("{", 0, "header: "),
        Case(r#"{"a":[]}"#, 0, "header: "),
        Case(
            r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#,
            4,
            "past the end",
        ),
        Case(
            r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#,
            9,
            "the data 9",
        ),
        Case(
            r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}}"#,
            8,
            "but the offsets are",
        ),
        Case(
            r#"{"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}}"#,
            8,
            "but the offsets are",
        ),
        Case(
            r#"{"a":{"dtype":"F32","shape":[9223372036854775807,4],"data_offsets":[0,8]}}"#,
            8,
            "larger than the address space",
        ),
        Case(
            r#"{"a":["F32",[2],[0,8]]}"#,
            8,
            "a dictionary of dtype, shape and data_offsets",
        ),
        Case(
            r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"more":0}}"#,
            8,
            "unknown variant `more`",
        ),
        Case(
            r#"{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[6,10]}}"#,
            10,
            "leaves a gap",
        ),
        Case(
            r#"{"a":{"dtype":"U16","shape":[2],"data_offsets":[0,4]}}"#,
            4,
            "type u16 is not supported",
        ),
        Case(
            r#"{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,8]}}"#,
            8,
            "header: ",
        ),
        Case(
            r#"{"a":{"dtype":"F8_E4M3","shape":[8],"data_offsets":[0,8]}}"#,
            8,
            "F8_E4M3",
        ),
        Case(
            r#"{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}}"#,
            8,
            "overlaps",
        ),
        Case(
            r#"{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}}"#,
            8,
            "duplicate name",
        ),
        Case(
            r#"{"__metadata__":{"a":"b"},"__metadata__":{}}"#,
            0,
            "duplicate key",
        ),
    ];
    for Case(header, data, expected) in cases {
        let message = message(&safetensors(header, data));
        assert!(message.contains(expected), "{header}: {message}");
    }
    let mut long = safetensors("{}", 0);
    long[..8].copy_from_slice(&u64::MAX.to_le_bytes());
    assert!(message(&long).contains("does not fit"));
    let deep = "{\"a\":".to_owned() + &"[".repeat(100_000);
    assert!(message(&safetensors(&deep, 0)).contains("header: "));
}

#[test]
fn shards_are_found_through_their_index_in_its_directory_only() {
    let dir = TempDir::new().unwrap();
    let entry = r#"{"dtype":"U8","shape":[4],"data_offsets":[0,4]}"#;
    file(
        &dir,
        "1.safetensors",
        &safetensors(&format!("{{\"a\":{entry}}}"), 4),
    );
    file(
        &dir,
        "2.safetensors",
        &safetensors(&format!("{{\"b\":{entry}}}"), 4),
    );
    let index = |map: &str| {
        let text = format!("{{\"weight_map\":{{{map}}}}}");
        file(&dir, "model.safetensors.index.json", text.as_bytes());
        Model::open(dir.path())
    };
    let model = index(r#""a":"1.safetensors","b":"2.safetensors""#).unwrap();
    assert_eq!(model.tensors().len(), 2);
    assert_eq!(model.tensor("b").unwrap().bytes(), [1; 4]);
    assert_eq!(model.container(), Container::Safetensors);
    let message = |map| index(map).unwrap_err().to_string();
    assert!(message(r#""a":"1.safetensors","c":"2.safetensors""#).contains("no tensor `c`"));
    assert!(message(r#""a":"../1.safetensors""#).contains("not the name of a file"));
    assert!(message(r#""a":"gone.safetensors""#).contains("gone.safetensors"));
}

#[test]
fn a_sharded_gguf_model_is_opened_by_its_first_shard() {
    let dir = TempDir::new().unwrap();
    let part = |number: u32, tensor: &str| {
        let raw = Raw::new(3, 1, 1).string("split.count").u32(4).u32(2);
        let raw = raw.tensor(tensor, &[4], 0, 0).data(32);
        file(&dir, &format!("m-0000{number}-of-00002.gguf"), &raw.0)
    };
    let first = part(1, "a");
    assert!(
        Model::open(&first)
            .unwrap_err()
            .to_string()
            .contains("00002-of-00002")
    );
    let second = part(2, "b");
    assert_eq!(Model::open(&first).unwrap().tensors().len(), 2);
    assert_eq!(Model::open(dir.path()).unwrap().tensors().len(), 2);
    assert!(
        Model::open(second)
            .unwrap_err()
            .to_string()
            .contains("open the first one")
    );
}

#[test]
fn files_that_are_not_models_are_rejected() {
    let dir = TempDir::new().unwrap();
    assert!(message(b"").contains("empty"));
    assert!(message(b"hello, I am a text").contains("not a model file"));
    assert!(message(&0x616b_3432_u32.to_le_bytes()).contains("version 0"));
    let open = |path: &Path| Model::open(path).unwrap_err().to_string();
    assert!(open(dir.path()).contains("no model in this directory"));
    assert!(open(&dir.path().join("gone")).contains("gone"));
    for name in ["a.gguf", "b.gguf"] {
        file(&dir, name, &Raw::new(3, 0, 0).0);
    }
    assert!(open(dir.path()).contains("2 models in this directory"));
}

#[test]
fn llama2c_headers_are_accepted_only_if_the_length_matches() {
    // width, ffn, layers, heads, heads of keys, vocabulary, context
    let header = [4_i32, 6, 2, 2, 1, 5, 3];
    let bytes = |header: [i32; 7], extra: usize| {
        let mut bytes: Vec<u8> = header.iter().flat_map(|v| v.to_le_bytes()).collect();
        // Embedding, norms, attention, FFN, output norm, RoPE.
        let floats = 5 * 4 + 2 * (4 + 16 + 8 + 8 + 16 + 4 + 3 * 24) + 4 + 2 * 3;
        bytes.resize(bytes.len() + 4 * floats + extra, 0);
        bytes
    };
    let dir = TempDir::new().unwrap();
    let model = Model::open(file(&dir, "m.bin", &bytes(header, 0))).unwrap();
    assert_eq!(model.info("blk.1.ffn_down.weight").unwrap().shape, [4, 6]);
    assert_eq!(model.info("blk.0.attn_k.weight").unwrap().shape, [2, 4]);
    assert!(!model.has("output.weight"));
    let mut own_head = header;
    own_head[5] = -5;
    let model = Model::open(file(&dir, "m.bin", &bytes(own_head, 4 * 20))).unwrap();
    assert!(model.has("output.weight"));
    let refused =
        |header, extra| assert!(message(&bytes(header, extra)).contains("not a model file"));
    refused(header, 1);
    for (at, value) in [
        (0, i32::MAX),
        (2, 1 << 24),
        (3, 0),
        (4, 3),
        (5, i32::MIN),
        (6, -1),
    ] {
        let mut header = header;
        header[at] = value;
        refused(header, 0);
    }
}
