//! `tril`, `triu`.

use bessemer::{Error, Tensor};

use crate::data::counted;

#[test]
fn triangles_end_at_their_diagonal() {
    let x = counted(&[3, 3]) + 1;
    assert_eq!(
        x.tril(0).to_vec::<i32>().unwrap(),
        [1, 0, 0, 4, 5, 0, 7, 8, 9]
    );
    assert_eq!(
        x.triu(0).to_vec::<i32>().unwrap(),
        [1, 2, 3, 0, 5, 6, 0, 0, 9]
    );
    assert_eq!(
        x.tril(1).to_vec::<i32>().unwrap(),
        [1, 2, 0, 4, 5, 6, 7, 8, 9]
    );
    assert_eq!(
        x.triu(-1).to_vec::<i32>().unwrap(),
        [1, 2, 3, 4, 5, 6, 0, 8, 9]
    );
    assert_eq!(
        x.t().tril(-1).to_vec::<i32>().unwrap(),
        [0, 0, 0, 2, 0, 0, 3, 6, 0]
    );
    for k in [isize::MIN, isize::MAX] {
        let (lower, upper) = (
            x.tril(k).to_vec::<i32>().unwrap(),
            x.triu(k).to_vec::<i32>().unwrap(),
        );
        let whole = if k > 0 { &lower } else { &upper };
        assert_eq!(*whole, x.to_vec::<i32>().unwrap());
        assert_eq!(if k > 0 { upper } else { lower }, [0; 9]);
    }
    let batch = counted(&[2, 2, 3]).tril(0);
    assert_eq!(
        batch.to_vec::<i32>().unwrap(),
        [0, 0, 0, 3, 4, 0, 6, 0, 0, 9, 10, 0]
    );
    assert!(matches!(
        counted(&[3]).tril(0).eval(),
        Err(Error::BadShape { .. })
    ));
    assert!(matches!(
        Tensor::scalar(1).triu(0).eval(),
        Err(Error::BadShape { .. })
    ));
}

mod against_the_reference {
    use bessemer_testing::layout::same;
    use bessemer_testing::reference::arrange::{tril, triu};

    use crate::axis::in_all_sizes;

    #[test]
    fn every_type_and_layout_is_right() {
        in_all_sizes("triangle", 700, |case, _, rng| {
            if case.shape.len() < 2 {
                return Ok(());
            }
            let (near, far) = (rng.below(5) as isize - 2, rng.below(280) as isize - 140);
            let k = rng.pick(&[near, near, far]);
            let (x, t) = (case.array(), case.tensor());
            same(&t.tril(k), &tril(&x, k))?;
            same(&t.triu(k), &triu(&x, k))
        });
    }
}
