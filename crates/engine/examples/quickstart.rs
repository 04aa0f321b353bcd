//! A tour of the engine: `cargo run -p bessemer --example quickstart`.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use bessemer::{DType, Result, Tensor, explain, npz, random};

fn main() -> Result<()> {
    // Tensors are created from data, from evenly spaced values, or from a random key.
    let x = Tensor::linspace(-2.0, 2.0, 5, DType::F32);
    let table = Tensor::from_slice(&[1, 2, 3, 4, 5, 6], [2, 3]);
    println!("x = {x}\ntable =\n{table}\n");

    // Views share memory: nothing is copied here.
    println!("columns, last row first =\n{}\n", table.t().flip(&[0]));

    // Formulas are recorded. `explain` shows their schedule: one pass over memory.
    let y = (&x * &x + 1.0).sqrt() - x.abs();
    let plan = explain(&[&y])?;
    let last = plan.steps.last().map(|step| step.ops.join(", "));
    println!("{y:?} will run as: {}", last.unwrap_or_default());

    // Reading evaluates.
    println!("y = {y:.4}\n");

    // Random values are a function of a key: every run gives the same.
    let [for_noise, for_choice] = random::Key::new(42).split_into();
    let noise = random::normal(&for_noise, [2, 3], DType::F32);
    let kept = random::bernoulli(&for_choice, 0.5, [2, 3]);
    println!(
        "noise, half of it dropped =\n{:.3}\n",
        kept.select(&noise, 0.0)
    );

    // NumPy can read these files too.
    let path = std::env::temp_dir().join(format!("quickstart-{}.npz", std::process::id()));
    npz::save(&path, &[("table", &table), ("noise", &noise)])?;
    for (name, tensor) in npz::load(&path)? {
        println!("{name}: {} {}", tensor.dtype(), tensor.shape());
    }
    // Failing to remove the temporary file is not an error.
    let _ = std::fs::remove_file(&path);

    // An invalid call returns its error when the value is read.
    let wrong = &x + &table;
    println!("\nx + table: {wrong}");
    assert!(wrong.eval().is_err());
    Ok(())
}
