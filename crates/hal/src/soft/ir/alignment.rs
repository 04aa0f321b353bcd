//! Reduces alignments that kernels declare but do not keep.
//!
//! Metal aligns a `float4` to 16 bytes; GPUs only care about the element, and kernels read and write vectors at the
//! edges of matrices with odd row lengths. The code generator selects instructions that fault on misaligned addresses
//! only if the declared alignment is above 8, so this pass declares at most 8. Processors with vectors execute the unaligned
//! instructions at the same speed.

/// Largest alignment for which no faulting instruction is selected.
const MAX_ALIGNMENT_BYTES: u32 = 8;

/// Limits alignments to [`MAX_ALIGNMENT_BYTES`], except for memory that the compiler itself lays out: globals and stack slots.
/// Atomic accesses and arguments passed in memory need theirs and keep it.
pub(super) fn lower(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let kept = line.starts_with(['@', '!', '%'])
            || ["= alloca ", " atomic ", "atomicrmw ", "cmpxchg ", "byval("]
                .iter()
                .any(|what| line.contains(what));
        if kept {
            out.push_str(line);
            continue;
        }
        let mut rest = line;
        while let Some(at) = rest.find(" align ") {
            let (before, after) = rest.split_at(at + " align ".len());
            let digits = after.bytes().take_while(u8::is_ascii_digit).count();
            let (number, tail) = after.split_at(digits);
            out.push_str(before);
            match number.parse::<u32>() {
                Ok(declared) if declared > MAX_ALIGNMENT_BYTES => {
                    out.push_str(&MAX_ALIGNMENT_BYTES.to_string())
                }
                _ => out.push_str(number),
            }
            rest = tail;
        }
        out.push_str(rest);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::lower;

    #[test]
    fn only_the_alignment_of_accesses_is_reduced() {
        for (input, expected) in [
            (
                "  %v = load <4 x float>, ptr %p, align 16, !tbaa !3\n",
                "  %v = load <4 x float>, ptr %p, align 8, !tbaa !3\n",
            ),
            (
                "  store float %x, ptr %p, align 4",
                "  store float %x, ptr %p, align 4",
            ),
            (
                "call void @llvm.memcpy.p0.p0.i64(ptr noundef align 32 %a, ptr align 16 %b, i64 64, i1 false)\n",
                "call void @llvm.memcpy.p0.p0.i64(ptr noundef align 8 %a, ptr align 8 %b, i64 64, i1 false)\n",
            ),
        ] {
            assert_eq!(lower(input), expected);
        }
        for kept in [
            "  %a = alloca [4 x float], align 16\n",
            "@table = internal constant [4 x float] zeroinitializer, align 16\n",
            "  %v = load atomic i128, ptr %p seq_cst, align 16\n",
            "  call void @f(ptr byval(%struct.s) align 16 %s)\n",
            "  %v = load float, ptr %p, align \n",
        ] {
            assert_eq!(lower(kept), kept);
        }
    }
}
