//! Template kernels, their names, and the C++ around them.

use bessemer_hal::CompileOptions;

use crate::harness::{Run, Source, compile, source, targets};

const SOURCE: Source = source!("template.metal");

#[test]
fn host_names_in_all_spellings_name_the_correct_instance() {
    for (name, n) in [
        ("signature", 1),
        ("keyword", 2),
        ("decltype", 3),
        ("alias", 4),
        ("using", 5),
        ("macro", 6),
        ("adjacent", 7),
        ("list", 8),
        ("comparison", 9),
    ] {
        let expected: Vec<f32> = (0..5).map(|i| (n + i) as f32).collect();
        Run::kernel(&SOURCE, &format!("fill_{name}"))
            .output::<f32>(0, 5)
            .threads(5, 5)
            .expect(0, &expected);
    }
    Run::kernel(&SOURCE, "negate_deduced")
        .input(0, &[1.0_f32, -2.])
        .output::<f32>(1, 2)
        .threads(2, 2)
        .expect(1, &[-1.0_f32, 2.]);
}

#[test]
fn a_library_lists_its_kernels_and_nothing_else() {
    let mut expected: Vec<_> = [
        "fill_signature",
        "fill_keyword",
        "fill_decltype",
        "fill_alias",
        "fill_using",
        "fill_macro",
        "fill_adjacent",
        "fill_list",
        "fill_comparison",
        "negate_deduced",
        "add_float",
        "multiply_int_reversed",
        "halve_twice",
        "square_once",
        "address_spaces",
        "traits",
        "in_namespaces",
    ]
    .map(str::to_owned)
    .to_vec();
    expected.sort();
    for target in targets() {
        let options = CompileOptions::labelled(SOURCE.path);
        let library = compile(&target.device, SOURCE.text, &options).unwrap();
        let mut names = library.function_names();
        names.sort();
        assert_eq!(names, expected, "{}", target.name);
    }
}

#[test]
fn types_values_and_functions_are_template_arguments() {
    Run::kernel(&SOURCE, "add_float")
        .input(0, &[1.0_f32, 2., 3.])
        .input(1, &[10.0_f32, 20., 30.])
        .output::<f32>(2, 3)
        .threads(3, 3)
        .expect(2, &[11.0_f32, 22., 33.]);
    Run::kernel(&SOURCE, "multiply_int_reversed")
        .input(0, &[1, 2, 3])
        .input(1, &[10, 20, 30])
        .output::<i32>(2, 3)
        .threads(3, 3)
        .expect(2, &[90, 40, 10]);
    Run::kernel(&SOURCE, "halve_twice")
        .input(0, &[8.0_f32, 2.])
        .output::<f32>(1, 2)
        .threads(2, 2)
        .expect(1, &[2.0_f32, 0.5]);
    Run::kernel(&SOURCE, "square_once")
        .input(0, &[8.0_f32, -3.])
        .output::<f32>(1, 2)
        .threads(2, 2)
        .expect(1, &[64.0_f32, 9.]);
}

#[test]
fn specialisation_traits_and_namespaces_work_as_in_cpp() {
    Run::kernel(&SOURCE, "traits")
        .output::<i32>(0, 7)
        .threads(1, 1)
        .expect(0, &[1, 31, 40, 12, 48, 1, 1]);
    Run::kernel(&SOURCE, "in_namespaces")
        .output::<i32>(0, 5)
        .threads(1, 1)
        .expect(0, &[7, 42, 5, 8, 8]);
}
