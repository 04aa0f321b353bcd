//! Tests of the pass on IR text, without a compiler.

use super::types::Type;
use super::{FissionError, Options, Outcome, fission, module, parse};

/// A module whose kernel is `body`, which starts on line 2.
fn kernel(body: &str) -> String {
    format!("define void @sm_kernel(ptr %g, i32 %x, i32 %y, i32 %z, i32 %lane) {{\n{body}\n}}\n")
}

fn fission_error(body: &str) -> FissionError {
    fission(&kernel(body), &Options::default()).expect_err("the kernel is rejected")
}

#[test]
fn infers_the_type_of_every_kind_of_instruction() {
    struct Case {
        text: &'static str,
        ty: &'static str,
    }
    let cases = [
        Case {
            text: "add nuw nsw i32 %x, 1",
            ty: "i32",
        },
        Case {
            text: "fmul reassoc nnan <4 x float> %a, %b",
            ty: "<4 x float>",
        },
        Case {
            text: "fneg fast half %a",
            ty: "half",
        },
        Case {
            text: "load volatile bfloat, ptr %g, align 2, !tbaa !3",
            ty: "bfloat",
        },
        Case {
            text: "getelementptr inbounds %struct.s, ptr %g, i64 0, i32 1",
            ty: "ptr",
        },
        Case {
            text: "getelementptr i8, ptr %g, <2 x i64> %a",
            ty: "<2 x ptr>",
        },
        Case {
            text: "icmp samesign ult i32 %x, 3",
            ty: "i1",
        },
        Case {
            text: "fcmp fast olt <8 x float> %a, zeroinitializer",
            ty: "<8 x i1>",
        },
        Case {
            text: "select i1 %a, { float, i8 } %b, { float, i8 } %c",
            ty: "{ float, i8 }",
        },
        Case {
            text: "select <2 x i1> <i1 true, i1 false>, <2 x i16> %b, <2 x i16> %c",
            ty: "<2 x i16>",
        },
        Case {
            text: "zext nneg i32 %x to i64",
            ty: "i64",
        },
        Case {
            text: "ptrtoint ptr getelementptr (i8, ptr @q, i64 4) to i64",
            ty: "i64",
        },
        Case {
            text: "bitcast <2 x float> %a to double",
            ty: "double",
        },
        Case {
            text: "extractelement <4 x half> %a, i64 0",
            ty: "half",
        },
        Case {
            text: "insertelement <4 x half> %a, half 0xH3C00, i64 0",
            ty: "<4 x half>",
        },
        Case {
            text: "shufflevector <4 x i8> %a, <4 x i8> poison, <2 x i32> <i32 0, i32 1>",
            ty: "<2 x i8>",
        },
        Case {
            text: "extractvalue { float, [2 x i64] } %a, 1, 0",
            ty: "i64",
        },
        Case {
            text: "extractvalue %struct.s %a, 1",
            ty: "double",
        },
        Case {
            text: "insertvalue { float, i8 } poison, float %a, 0",
            ty: "{ float, i8 }",
        },
        Case {
            text: "call noundef zeroext range(i16 0, 9) i16 @f(i32 noundef signext 3) #2",
            ty: "i16",
        },
        Case {
            text: "tail call fast { float, float } @f(ptr nonnull align 8 dereferenceable(8) %g)",
            ty: "{ float, float }",
        },
        Case {
            text: "notail call fastcc %struct.s @f(ptr byval(%struct.s) align 8 %g)",
            ty: "%\"struct.s\"",
        },
        Case {
            text: "call i32 (ptr, ...) @printf(ptr %g, double 1.0e+02)",
            ty: "i32",
        },
        Case {
            text: "call i32 asm \"nop\", \"=r,r\"(i32 %x)",
            ty: "i32",
        },
        Case {
            text: "alloca [4 x float], align 16",
            ty: "ptr",
        },
        Case {
            text: "freeze i128 %a",
            ty: "i128",
        },
        Case {
            text: "atomicrmw volatile fadd ptr %g, float 1.0 syncscope(\"x\") monotonic, align 4",
            ty: "float",
        },
        Case {
            text: "cmpxchg weak ptr %g, i64 1, i64 2 acq_rel monotonic, align 8",
            ty: "{ i64, i1 }",
        },
        Case {
            text: "phi <2 x float> [ %a, %e ], [ <float 0.0, float 1.0>, %0 ]",
            ty: "<2 x float>",
        },
    ];
    for case in cases {
        let head = "%struct.s = type { i32, double }\n";
        let text = format!(
            "{head}{}",
            kernel(&format!("  %r = {}\n  ret void", case.text))
        );
        let module = module::Module::parse(&text).unwrap();
        let function = parse::function(&module.functions[0], &module.named);
        let function = function.unwrap_or_else(|e| panic!("{}: {e}", case.text));
        let inst = &function.blocks[0].insts[0];
        assert_eq!(inst.ty.to_string(), case.ty, "{}", case.text);
    }
}

#[test]
fn lays_out_types_as_the_target_does() {
    let layout = |ty: Type| ty.layout(&Default::default()).map(|l| (l.size, l.align));
    let vector = |n, ty| Type::Vector(n, Box::new(ty));
    assert_eq!(layout(vector(3, Type::Float)), Some((16, 16)));
    assert_eq!(layout(vector(8, Type::Int(1))), Some((1, 1)));
    assert_eq!(layout(Type::Int(24)), Some((4, 4)));
    let fields = vec![Type::Int(8), Type::Double, Type::Half];
    assert_eq!(
        layout(Type::Struct {
            packed: false,
            fields: fields.clone()
        }),
        Some((24, 8))
    );
    assert_eq!(
        layout(Type::Struct {
            packed: true,
            fields
        }),
        Some((11, 1))
    );
    assert_eq!(layout(Type::Void), None);
}

#[test]
fn rejects_unsupported_constructs_with_name_and_line() {
    let unsupported = |what: &str| FissionError::Unsupported {
        line: 2,
        what: what.into(),
    };
    assert_eq!(
        fission_error("  indirectbr ptr %g, [label %a]"),
        unsupported("indirectbr")
    );
    assert_eq!(
        fission_error("  invoke void @f() to label %a unwind label %b"),
        unsupported("invoke")
    );
    assert_eq!(
        fission_error("  musttail call void @f()\n  ret void"),
        unsupported("musttail")
    );
    assert!(
        fission_error("  %a = alloca float, i32 %x\n  ret void")
            .to_string()
            .contains("variable-length array")
    );
    let dynamic = fission_error("  %s = call ptr @sm_tgvar(i32 1, i64 %x, i64 4)\n  ret void");
    assert!(
        dynamic.to_string().contains("threadgroup variable"),
        "{dynamic}"
    );
    assert_eq!(
        fission_error("  %a = frobnicate i32 1\n  ret void"),
        FissionError::Syntax {
            line: 2,
            what: "unknown instruction `frobnicate`".into()
        }
    );
    assert_eq!(
        fission("", &Options::default()),
        Err(FissionError::NoKernel)
    );
}

#[test]
fn recursion_around_a_barrier_is_rejected_after_inlining() {
    let text = format!(
        "{}define void @f(i32 %n) #0 {{\n  call void @sm_sync_tg(i32 2)\n  call void @f(i32 %n)\n  ret void\n}}\n\
         declare void @sm_sync_tg(i32)\nattributes #0 = {{ noinline nounwind }}\n",
        kernel("  call void @f(i32 %x)\n  ret void")
    );
    let Ok(Outcome::Inline { text }) = fission(&text, &Options::default()) else {
        panic!("the pass requests inlining");
    };
    assert!(
        text.contains("define void @f(i32 %n) #1")
            && text.contains("attributes #1 = { alwaysinline nounwind }")
    );
    assert_eq!(
        fission(&text, &Options::default()),
        Err(FissionError::NotInlined {
            function: "f".into()
        })
    );
}

#[test]
fn malformed_text_is_an_error_and_never_a_panic() {
    let text = format!(
        "%struct.s = type {{ i32, double }}\n{}declare void @sm_sync_tg(i32)\n!0 = !{{}}\n",
        kernel(
            "  %a = alloca [4 x float], align 16\n  call void @sm_sync_tg(i32 noundef 2) #0\n  \
             switch i32 %x, label %d [\n    i32 0, label %d\n  ]\n\nd:\n  %p = phi i32 [ 1, %0 ], [ 2, %0 ]\n  \
             store i32 %p, ptr %g, align 4, !tbaa !0\n  ret void"
        )
    );
    for position in 0..text.len() {
        let _ = fission(&text[..position], &Options { check: true });
        let _ = fission(
            &format!(
                "{}{}",
                &text[..position],
                &text[(position + 3).min(text.len())..]
            ),
            &Options::default(),
        );
        let _ = fission(
            &format!("{}%{}", &text[..position], &text[position..]),
            &Options::default(),
        );
    }
}

#[test]
fn an_attribute_group_never_becomes_empty() {
    let text = "define void @sm_kernel(ptr %g, i32 %x, i32 %y, i32 %z, i32 %lane) #1 {\n  ret void\n}\n\
                attributes #0 = { convergent }\nattributes #1 = { convergent nounwind }\n";
    let Ok(Outcome::Done { text, .. }) = fission(text, &Options::default()) else {
        panic!("a kernel without synchronisation is split in one round");
    };
    assert!(text.contains("attributes #0 = { nounwind }"), "{text}");
    assert!(text.contains("attributes #1 = { nounwind }"), "{text}");
}
