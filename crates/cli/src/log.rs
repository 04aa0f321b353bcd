//! `--log` and `BESSEMER_LOG`: spans and events of the crates, on standard error.

use anyhow::Result;
use bessemer_hal::env;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::FmtSpan;
use tracing_subscriber::fmt::{self, time};

use crate::failure::Usage;

/// Starts writing what a filter lets through, if there is one.
pub(crate) fn start(option: Option<&str>) -> Result<()> {
    let filter = match option {
        Some(text) => Some(
            EnvFilter::builder()
                .parse(text)
                .map_err(|e| Usage::error(format!("--log {text}: {e}")))?,
        ),
        None => env::LOG.parse(|text| EnvFilter::builder().parse(text).ok())?,
    };
    if let Some(filter) = filter {
        // Spans are written when they end, with their time.
        fmt::Subscriber::builder()
            .with_env_filter(filter)
            .with_span_events(FmtSpan::CLOSE)
            .with_timer(time::uptime())
            .with_ansi(false)
            .with_writer(std::io::stderr)
            .init();
    }
    Ok(())
}
