//! `repeat`, `tile`.

use bessemer::{Error, Tensor};

use crate::data::counted;

#[test]
fn elements_are_repeated_and_tiled() {
    let x = counted(&[2, 2]);
    assert_eq!(
        x.repeat(2, 0).to_vec::<i32>().unwrap(),
        [0, 1, 0, 1, 2, 3, 2, 3]
    );
    assert_eq!(
        x.repeat(3, 1).to_vec::<i32>().unwrap(),
        [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    );
    assert_eq!(
        x.t().repeat(2, -1).to_vec::<i32>().unwrap(),
        [0, 0, 2, 2, 1, 1, 3, 3]
    );
    assert_eq!(*x.repeat(0, 0).shape(), [0, 2]);
    assert_eq!(
        x.tile(&[2]).to_vec::<i32>().unwrap(),
        [0, 1, 0, 1, 2, 3, 2, 3]
    );
    assert_eq!(
        x.tile(&[2, 1]).to_vec::<i32>().unwrap(),
        [0, 1, 2, 3, 0, 1, 2, 3]
    );
    let y = x.tile(&[2, 1, 2]);
    assert_eq!(*y.shape(), [2, 2, 4]);
    assert_eq!(y.to_vec::<i32>().unwrap()[8..], [0, 1, 0, 1, 2, 3, 2, 3]);
    assert_eq!(x.tile(&[]).to_vec::<i32>().unwrap(), [0, 1, 2, 3]);
    assert_eq!(*x.tile(&[0, 1]).shape(), [0, 2]);
    assert_eq!(
        Tensor::scalar(7).tile(&[3]).to_vec::<i32>().unwrap(),
        [7; 3]
    );
    let many = counted(&[1, 2, 1, 2, 1, 1, 1, 2]);
    assert_eq!(*many.repeat(2, 3).shape(), [1, 2, 1, 4, 1, 1, 1, 2]);
}

#[test]
fn overflowing_counts_are_errors() {
    let x = counted(&[2, 2]);
    for y in [
        x.repeat(usize::MAX, 0),
        x.tile(&[usize::MAX, 1]),
        x.repeat(1 << 62, 1),
    ] {
        assert!(matches!(y.eval(), Err(Error::SizeOverflow { .. })), "{y:?}");
    }
    for y in [x.repeat(1 << 48, 0), x.tile(&[1 << 48, 1])] {
        assert!(matches!(y.eval(), Err(Error::OutOfMemory { .. })), "{y:?}");
    }
    assert!(matches!(x.repeat(2, 2).eval(), Err(Error::BadAxis { .. })));
    assert!(matches!(
        x.tile(&[1; 9]).eval(),
        Err(Error::RankTooLarge { .. })
    ));
}

mod against_the_reference {
    use bessemer_testing::case::Fill;
    use bessemer_testing::layout::same;
    use bessemer_testing::reference::arrange::{repeat, tile};

    use crate::axis::{along_an_axis, in_all_sizes};

    #[test]
    fn every_type_layout_and_axis_is_repeated() {
        in_all_sizes("repeat", 300, |case, axis, rng| {
            let n = rng.below(5);
            same(
                &case.tensor().repeat(n, axis),
                &repeat(&case.array(), n, axis),
            )
        });
    }

    #[test]
    fn every_type_and_layout_is_tiled() {
        along_an_axis("tile", &Fill::ALL, 100, |case, _, rng| {
            let rank = rng.below(case.shape.len() + 2);
            let counts: Vec<_> = (0..rank).map(|_| rng.pick(&[1, 2, 1, 3, 0])).collect();
            same(&case.tensor().tile(&counts), &tile(&case.array(), &counts))
        });
    }
}
