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

#[cfg(all(test, feature = "tracing"))]
mod tests {
    use std::fmt::{Debug, Write as _};
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{Arc, Mutex};

    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

    use crate::{DType, Device, Tensor};

    /// Collects spans and events as lines `name field=value …`.
    #[derive(Default)]
    struct Collector {
        lines: Arc<Mutex<Vec<String>>>,
        spans: AtomicU64,
    }

    struct Line(String);

    impl Visit for Line {
        fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
            let _ = match field.name() {
                "message" => write!(self.0, "{value:?}"),
                name => write!(self.0, " {name}={value:?}"),
            };
        }
    }

    impl Subscriber for Collector {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            metadata.target().starts_with("bessemer")
        }

        fn new_span(&self, span: &Attributes<'_>) -> Id {
            let mut line = Line(span.metadata().name().to_owned());
            span.record(&mut line);
            self.lines.lock().expect("no panic").push(line.0);
            Id::from_u64(self.spans.fetch_add(1, Ordering::Relaxed) + 1)
        }

        fn event(&self, event: &Event<'_>) {
            let mut line = Line(String::new());
            event.record(&mut line);
            self.lines.lock().expect("no panic").push(line.0);
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    /// What evaluating a tensor emits.
    fn lines(tensor: &Tensor) -> Vec<String> {
        let collector = Collector::default();
        let lines = Arc::clone(&collector.lines);
        tracing::subscriber::with_default(collector, || tensor.eval().expect("it is small"));
        let lines = lines.lock().expect("no panic");
        lines.clone()
    }

    #[test]
    fn evaluation_tells_what_is_fused_and_what_is_not() {
        let x = Tensor::linspace(0.0, 1.0, 2048, DType::F32).to(&Device::cpu());
        x.eval().expect("it is small");
        // The sum reads `shared` from memory; the last three ops are one program.
        let y = {
            let shared = x.exp();
            ((&shared + shared.sum(&[], false)) * 2.0).tanh()
        };
        let lines = lines(&y);
        for expected in [
            "evaluate tensors=1",
            "schedule nodes=5",
            "common subexpressions nodes=5",
            "fused last=\"tanh\" ops=3 inputs=3",
            "fusion nodes=3",
            "run op=\"exp\" dtype=f32 shape=[2048] device=\"CPU\"",
            "run op=\"fused\" dtype=f32 shape=[2048] device=\"CPU\"",
            "result in the memory of an input input=0",
        ] {
            assert!(
                lines.iter().any(|l| l == expected),
                "{expected}: {lines:#?}"
            );
        }
        let reason = lines.iter().find(|l| l.starts_with("not fused op=\"exp\""));
        assert!(
            reason.is_some_and(|l| l.contains("from memory")),
            "{lines:#?}"
        );
        assert!(lines.iter().any(|l| l.starts_with("memory ")), "{lines:#?}");
    }

    #[test]
    fn a_launch_is_told_with_its_kernel() {
        let device = Device::on(bessemer_hal::noop::device(bessemer_hal::Family::Apple7));
        let x = Tensor::from_slice(&[1.0_f32; 64], [64]).to(&device);
        let lines = lines(&x.exp());
        let launch = lines.iter().find(|l| l.starts_with("launch kernel="));
        assert!(launch.is_some_and(|l| l.contains(" bytes=")), "{lines:#?}");
        for start in ["library label=", "pipeline library=", "commit commands=1"] {
            assert!(
                lines.iter().any(|l| l.starts_with(start)),
                "{start}: {lines:#?}"
            );
        }
    }
}
