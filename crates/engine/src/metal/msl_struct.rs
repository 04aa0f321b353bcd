//! Structs that the host and the kernels share, defined once.
//!
//! [`msl_struct!`] defines a `#[repr(C)]` struct of plain data and its MSL twin. A kernel source includes the twin by
//! `#include "host/NAME.h"`, which [`super::msl`] resolves from [`STRUCTS`].
//!
//! Layouts agree by construction, and every compilation checks it: `Pod` forbids padding on the host, so the
//! size of the struct is the sum of its fields, and the twin asserts that its size is the same. Fields of equal
//! sizes in the same order without padding have the same offsets. Padding is therefore always a field.

use bytemuck::{Pod, Zeroable};

use super::{
    arange::ArangeArgs, arange::Double, attention::AttentionArgs, axis_split::AxisSplit,
    band::Band, conv::ConvWindows, conv::DirectConvArgs, copy::CopyArgs, cross_entropy::TargetView,
    decoder_args::DecodeEmbedArgs, decoder_args::DecodeState, decoder_args::FfnArgs,
    decoder_args::GemvArgs, decoder_args::HeadArgs, decoder_args::LogitBias,
    decoder_args::PrefillAttentionArgs, decoder_args::PrefillEmbedArgs,
    decoder_args::PrefillNormArgs, decoder_args::PrefillRopeArgs, decoder_args::ProjectArgs,
    decoder_args::QueryTile, decoder_args::RowPosition, decoder_args::SampleArgs,
    decoder_args::SamplerState, decoder_args::TokenRecord, elementwise::Extent, fault::FaultRecord,
    group_norm::GroupNormArgs, layer_norm::LayerNormArgs, matmul::MatmulArgs,
    matmul::MatrixStrides, pooling::PoolArgs, program::ProgramFault, quant_matmul::QuantMatmulArgs,
    random::RandomArgs, reduce::ReduceArgs, region::Region, rms_norm::NormParameter,
    rope::RopeArgs, rows::AxisRows, scan::ScanArgs, scatter::ScatterTarget, sort::SortArgs,
    view::ViewStrides, view::Walk,
};

/// A type that a field of a shared struct may have.
pub(crate) trait MslType {
    /// Its MSL name.
    const NAME: &'static str;

    /// The declaration of a variable of the type.
    fn declaration(variable: &str) -> String {
        format!("{} {variable}", Self::NAME)
    }

    /// The line that includes its definition, if it has one.
    fn include() -> String {
        String::new()
    }
}

macro_rules! scalar {
    ($($type:ty => $name:literal),* $(,)?) => {$(
        impl MslType for $type {
            const NAME: &'static str = $name;
        }
    )*};
}
scalar!(u32 => "uint", i32 => "int", u64 => "ulong", i64 => "long", f32 => "float");

impl<T: MslType, const N: usize> MslType for [T; N] {
    const NAME: &'static str = T::NAME;

    fn declaration(variable: &str) -> String {
        T::declaration(&format!("{variable}[{N}]"))
    }

    fn include() -> String {
        T::include()
    }
}

/// A `uint` that kernels access atomically.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(transparent)]
pub(super) struct AtomicUint(pub(super) u32);

impl MslType for AtomicUint {
    const NAME: &'static str = "atomic_uint";
}

/// A `uint3`, which has the size of four.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(transparent)]
pub(super) struct Uint3(pub(super) [u32; 4]);

impl MslType for Uint3 {
    const NAME: &'static str = "uint3";
}

/// A struct that has an MSL twin.
pub(crate) trait MslStruct: MslType {
    /// The text of the header that defines it.
    fn header() -> String;
}

/// Defines a struct for the host and for kernels.
macro_rules! msl_struct {
    (
        $(#[$attribute:meta])*
        $visibility:vis struct $name:ident {
            $($(#[$field_attribute:meta])* $field_visibility:vis $field:ident: $type:ty,)+
        }
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
        #[repr(C)]
        $visibility struct $name {
            $($(#[$field_attribute])* $field_visibility $field: $type,)+
        }

        impl $crate::metal::msl_struct::MslType for $name {
            const NAME: &'static str = stringify!($name);

            fn include() -> String {
                concat!("#include \"host/", stringify!($name), ".h\"\n").to_owned()
            }
        }

        impl $crate::metal::msl_struct::MslStruct for $name {
            fn header() -> String {
                use $crate::metal::msl_struct::MslType;
                let fields = [$((
                    <$type as MslType>::include(),
                    <$type as MslType>::declaration(stringify!($field)),
                )),+];
                $crate::metal::msl_struct::write_header(stringify!($name), size_of::<Self>(), &fields)
            }
        }
    };
}
pub(crate) use msl_struct;

/// The text of a struct's header, given the include and the declaration of each field.
pub(crate) fn write_header(name: &str, size: usize, fields: &[(String, String)]) -> String {
    let mut text: String = fields.iter().map(|(include, _)| include.as_str()).collect();
    text += &format!("struct {name} {{\n");
    for (_, declaration) in fields {
        text += &format!("    {declaration};\n");
    }
    text += &format!(
        "}};\nstatic_assert(sizeof({name}) == {size}, \"{name}: its size on the host is {size}\");\n"
    );
    text
}

/// Lists structs with the names of their headers.
macro_rules! structs {
    ($($name:ident),* $(,)?) => {
        &[$((concat!("host/", stringify!($name), ".h"), <$name as MslStruct>::header)),*]
    };
}

/// A header of a shared struct: its name, and the function that writes it.
type StructHeader = (&'static str, fn() -> String);

/// The headers of all shared structs.
const STRUCTS: &[StructHeader] = structs![
    ArangeArgs,
    AttentionArgs,
    AxisSplit,
    Band,
    ConvWindows,
    CopyArgs,
    DecodeEmbedArgs,
    DecodeState,
    DirectConvArgs,
    Double,
    Extent,
    FaultRecord,
    FfnArgs,
    GemvArgs,
    GroupNormArgs,
    HeadArgs,
    LayerNormArgs,
    LogitBias,
    MatmulArgs,
    MatrixStrides,
    NormParameter,
    PoolArgs,
    PrefillAttentionArgs,
    PrefillEmbedArgs,
    PrefillNormArgs,
    PrefillRopeArgs,
    ProgramFault,
    ProjectArgs,
    QuantMatmulArgs,
    QueryTile,
    RandomArgs,
    ReduceArgs,
    Region,
    RopeArgs,
    RowPosition,
    AxisRows,
    SampleArgs,
    SamplerState,
    ScanArgs,
    ScatterTarget,
    SortArgs,
    TargetView,
    TokenRecord,
    ViewStrides,
    Walk
];

/// The text of the header of a shared struct.
pub(super) fn header(name: &str) -> Option<String> {
    let found = STRUCTS.iter().find(|(other, _)| *other == name);
    found.map(|(_, write)| write())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_declares_the_fields_in_order_and_asserts_the_size() {
        let expected = "struct ViewStrides {\n    long strides[8];\n    long offset;\n};\n\
                        static_assert(sizeof(ViewStrides) == 72, \"ViewStrides: its size on the host is 72\");\n";
        assert_eq!(header("host/ViewStrides.h").as_deref(), Some(expected));
        assert_eq!(header("host/Unknown.h"), None);
    }

    #[test]
    fn nested_structs_are_included() {
        let text = header("host/Extent.h").expect("a shared struct");
        assert!(text.starts_with(
            "#include \"host/Walk.h\"\nstruct Extent {\n    Walk walk;\n    ulong count;\n"
        ));
    }
}
