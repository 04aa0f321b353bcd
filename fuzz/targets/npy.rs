//! NumPy's `.npy` and `.npz`.
#![no_main]

use bessemer::{Tensor, npy, npz};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let path = bessemer_fuzz::file("x", bytes);
    let tensors = match bytes {
        [b'P', b'K', ..] => npz::load(&path).unwrap_or_default(),
        _ => match Tensor::load_npy(&path) {
            Ok(tensor) => vec![(String::new(), tensor)],
            Err(_) => Vec::new(),
        },
    };
    if let Ok(array) = npy::read(&path) {
        assert!(array.data.len() <= bytes.len());
    }
    for (_, tensor) in tensors {
        assert!(tensor.eval().is_ok());
        assert!(!tensor.to_string().is_empty());
    }
});
