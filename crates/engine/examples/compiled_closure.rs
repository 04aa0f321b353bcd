//! A closure over tensors as one kernel: `cargo run --release -p bessemer --example compiled_closure`.
#![expect(clippy::print_stdout, reason = "an example prints its results")]

use bessemer::{DType, Result, Tensor, compile, eval, random};

fn main() -> Result<()> {
    // Traced once for each signature of its arguments (dtypes, shapes, device) and replayed from then on. What changes
    // between calls, such as the width, is an argument.
    let gauss = compile(|t: &[Tensor]| {
        let (x, width) = (&t[0], &t[1]);
        let scaled = x / width;
        (-(&scaled * &scaled)).exp() / width
    });
    let x = random::normal(&random::Key::new(1), [100_000], DType::F32);
    for width in [0.5_f32, 1.0, 2.0] {
        let y = &gauss.call(&[&x, &Tensor::scalar(width)])?[0];
        eval(&[y])?;
        let first = y.narrow(0, 0, 3);
        println!("width {width}: {first}");
        let expected = {
            let scaled = &x / width;
            (-(&scaled * &scaled)).exp() / width
        };
        let error = (y - expected).abs().max(&[], false).item::<f32>()?;
        assert!(error < 1e-6);
    }
    assert_eq!(gauss.traces(), 1, "it was traced once");
    Ok(())
}
