use bessemer::DType;
use bessemer_testing::array::count;
use bessemer_testing::case::{Fill, check, input, shape};
use bessemer_testing::layout::same;
use bessemer_testing::random::Rng;
use bessemer_testing::reference::arrange::flip;

#[test]
fn every_layout_of_every_type_is_copied() {
    for dtype in DType::ALL {
        let cases = input(&[dtype], &[Fill::Wide], shape(5, 3000));
        check(&format!("copy of {dtype}"), 40, cases, |case| {
            same(&case.tensor().contiguous(), &case.array())
        });
    }
}

#[test]
fn every_layout_can_be_reshaped() {
    let cases = input(&DType::ALL, &[Fill::Wide], shape(5, 3000));
    check("reshape", 300, cases, |case| {
        // Merges random neighbouring axes, then splits one at a divisor.
        let mut rng = Rng::new(case.seed);
        let mut shape = case.shape.clone();
        while shape.len() > 1 && rng.one_in(2) {
            let at = rng.below(shape.len() - 1);
            let n = shape.remove(at);
            shape[at] *= n;
        }
        if let Some(at) = shape.iter().position(|n| n % 2 == 0 && count(&shape) > 0) {
            shape[at] /= 2;
            shape.insert(at + rng.below(2), 2);
        }
        let got = case.tensor().reshape(&shape[..]);
        same(&got, &case.array().reshape(&shape))
    });
}

#[test]
fn every_layout_of_every_type_is_flipped() {
    crate::axis::in_all_sizes("flip", 500, |case, axis, rng| {
        let mut axes = vec![axis];
        for other in 0..case.shape.len() as isize {
            if other != crate::axis::axis_index(case, axis) as isize && rng.one_in(3) {
                axes.push(other);
            }
        }
        let (x, t) = (case.array(), case.tensor());
        same(&t.flip(&axes).contiguous(), &flip(&x, &axes))?;
        same(&t.flip(&[]), &flip(&x, &[]))
    });
}
