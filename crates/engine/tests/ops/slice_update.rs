//! `slice_update`.

use bessemer::{DType, Error, Tensor, explain};

use crate::data::counted;

#[test]
fn dead_inputs_are_updated_in_place_and_live_ones_are_not() {
    let make = || Tensor::zeros([64, 64], DType::F32).contiguous() + 1.0;
    let source = Tensor::ones([1, 64], DType::F32) * 5.0;
    let living = make();
    living.eval().unwrap();
    let y = living.slice_update(&source, &[3, 0]);
    assert_eq!(y.sum(&[], false).item::<f32>(), Ok(4096.0 + 64.0 * 4.0));
    assert_eq!(living.sum(&[], false).item::<f32>(), Ok(4096.0));
    let y = make().slice_update(&source, &[63, 0]);
    let plan = explain(&[&y]).unwrap();
    assert!(plan.steps.last().unwrap().in_place, "{plan}");
    assert_eq!(y.sum(&[], false).item::<f32>(), Ok(4096.0 + 64.0 * 4.0));
    // The source has the shape of the result, but must not be donated.
    let zeros = Tensor::zeros([64, 64], DType::F32);
    let y = zeros.slice_update(&make(), &[0, 0]);
    assert_eq!(y.sum(&[], false).item::<f32>(), Ok(4096.0));
}

#[test]
fn a_cache_grows_without_copies() {
    let mut cache = Tensor::zeros([4, 256, 8], DType::F32).contiguous();
    for position in 0..10 {
        let row = Tensor::full([4, 1, 8], position as f64, DType::F32);
        cache = cache.slice_update(&row, &[0, position, 0]);
        cache.eval().unwrap();
    }
    let y = cache.index(0, 3).index(1, 7).to_vec::<f32>().unwrap();
    assert_eq!(
        y[..11],
        [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 0.0]
    );
}

#[test]
fn sources_of_any_layout_are_written() {
    let x = counted(&[4, 5]);
    let block = counted(&[2, 3]).t().slice(1, None, None, -1).t();
    let y = x.slice_update(&block, &[1, 2]);
    let expected = [
        0, 1, 2, 3, 4, 5, 6, 3, 4, 5, 10, 11, 0, 1, 2, 15, 16, 17, 18, 19,
    ];
    assert_eq!(y.to_vec::<i32>().unwrap(), expected);
    let y = x
        .t()
        .slice_update(&Tensor::scalar(9).reshape([1, 1]), &[0, 0]);
    assert_eq!(y.index(0, 0).to_vec::<i32>().unwrap(), [9, 5, 10, 15]);
    let nothing = Tensor::from_slice(&[0; 0], [0, 5]);
    assert_eq!(
        x.slice_update(&nothing, &[4, 0]).to_vec::<i32>().unwrap(),
        x.to_vec::<i32>().unwrap()
    );
}

#[test]
fn rejects_sources_out_of_range() {
    let x = counted(&[3, 4]);
    let zero = Tensor::from_slice(&[0], [1]);
    let column = Tensor::from_slice(&[0; 3], [3, 1]);
    assert!(matches!(
        x.slice_update(&x, &[0, 1]).eval(),
        Err(Error::ShapeMismatch { .. })
    ));
    assert!(matches!(
        x.slice_update(&x, &[0]).eval(),
        Err(Error::Invalid { .. })
    ));
    assert!(matches!(
        x.slice_update(&zero, &[0, 0]).eval(),
        Err(Error::ShapeMismatch { .. })
    ));
    let far = x.slice_update(&column, &[0, usize::MAX]);
    assert!(matches!(far.eval(), Err(Error::ShapeMismatch { .. })));
    let scalar = Tensor::scalar(1.0_f32);
    assert_eq!(
        scalar
            .slice_update(&Tensor::scalar(2.0_f32), &[])
            .item::<f32>(),
        Ok(2.0)
    );
}

mod against_the_reference {
    use bessemer_testing::layout::same;
    use bessemer_testing::reference::index::slice_update;

    use crate::axis::{another, in_all_sizes, often};

    #[test]
    fn every_type_layout_and_shape_is_right() {
        in_all_sizes("slice_update", 500, |case, _, rng| {
            let mut block = Vec::new();
            let mut start = Vec::new();
            for &n in &case.shape {
                // Whole axes are common.
                let len = if rng.one_in(2) { n } else { rng.below(n + 1) };
                block.push(len);
                start.push(rng.below(n - len + 1));
            }
            let dtype = often(rng, case.dtype);
            let source = another(rng, dtype, &block);
            same(
                &case.tensor().slice_update(&source.tensor(), &start),
                &slice_update(&case.array(), &source.array(), &start),
            )
        });
    }
}
