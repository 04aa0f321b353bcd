//! Spans and events for `tracing`, compiled in with the feature of that name only.
//!
//! `event!(DEBUG, "message", field = value)` records an event, and `span!(DEBUG, "name", field = value)` opens a span that
//! lasts until the end of the enclosing block. Without the feature they generate no code and evaluate nothing. A value that
//! only has `Display` or `Debug` is passed as `format_args!`.

#[cfg(feature = "tracing")]
macro_rules! event {
    ($level:ident, $message:literal $(, $field:ident = $value:expr)*) => {
        tracing::event!(tracing::Level::$level, $($field = $value,)* $message)
    };
}

#[cfg(not(feature = "tracing"))]
macro_rules! event {
    ($level:ident, $message:literal $(, $field:ident = $value:expr)*) => {
        if false {
            $(let _ = &$value;)*
        }
    };
}

#[cfg(feature = "tracing")]
macro_rules! span {
    ($level:ident, $name:literal $(, $field:ident = $value:expr)*) => {
        let _span = tracing::span!(tracing::Level::$level, $name, $($field = $value),*).entered();
    };
}

#[cfg(not(feature = "tracing"))]
macro_rules! span {
    ($level:ident, $name:literal $(, $field:ident = $value:expr)*) => {
        if false {
            $(let _ = &$value;)*
        }
    };
}
