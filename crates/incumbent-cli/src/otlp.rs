//! `--otlp`: where traces are sent, for the commands that have some to tell.

use std::path::PathBuf;

use incumbent_traces::{Source, Traces, Value, Wish};
use serde::{Deserialize, Serialize};

use crate::exit::Exit;
use crate::failure::Failure;

/// The variable by which whoever runs a program names it.
const SERVICE_NAME: &str = "OTEL_SERVICE_NAME";

#[derive(clap::Args, Debug, Serialize, Deserialize)]
#[command(next_help_heading = "Traces")]
pub(crate) struct OtlpArguments {
    /// Send traces to this OpenTelemetry collector, by OTLP over HTTP: http://127.0.0.1:4318, or https beyond this machine; else OTEL_EXPORTER_OTLP_ENDPOINT
    #[arg(long, value_name = "URL")]
    otlp: Option<String>,
    /// Who signs the certificate of the collector, if not those whom this machine trusts; else OTEL_EXPORTER_OTLP_CERTIFICATE
    #[arg(long, value_name = "FILE")]
    otlp_ca: Option<PathBuf>,
    /// Tell so many of the traces that begin here: 1 all, 0.01 one in a hundred; else OTEL_TRACES_SAMPLER and OTEL_TRACES_SAMPLER_ARG; else all
    #[arg(long, value_name = "RATIO", value_parser = share)]
    otlp_share: Option<f64>,
}

/// Whether it is one is said later, with the rest of the wish; but no JSON can say what is no number.
fn share(text: &str) -> Result<f64, String> {
    let said = text.parse().ok().filter(|it: &f64| it.is_finite());
    said.ok_or_else(|| "say a number from 0, none, to 1, all".to_owned())
}

impl OtlpArguments {
    /// Traces if they are wanted, of the one of this name. A mistake in an option is refused; what stands in the environment may be meant for other programs, so a mistake there is said, and nothing is traced.
    pub(crate) fn start(&self, instance: String, more: Vec<(&'static str, Value)>) -> Result<Traces, Failure> {
        // Also where nothing is traced: whoever names a collector later would find the mistake then, when the rest is right.
        if let Some(share) = self.otlp_share.filter(|it| !(0.0..=1.0).contains(it)) {
            let what = format!("--otlp-share: {share} is no share of traces: say a number from 0, none, to 1, all");
            return Err(Failure::Engine { what, exit: Exit::Usage });
        }
        let wish = Wish { endpoint: self.otlp.clone(), authority: self.otlp_ca.clone(), share: self.otlp_share };
        let collector = match wish.collector(|name| std::env::var(name).ok()) {
            Ok(Some(collector)) => collector,
            Ok(None) => return Ok(Traces::off()),
            Err(why) if why.by_option => {
                return Err(Failure::Engine { what: format!("--otlp: {why}"), exit: Exit::Usage });
            }
            Err(why) => {
                tracing::warn!(%why, "nothing is traced");
                return Ok(Traces::off());
            }
        };
        let named = std::env::var(SERVICE_NAME).ok().filter(|it| !it.is_empty());
        let source = Source {
            service: named.unwrap_or_else(|| "incumbent".to_owned()),
            instance,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            more,
        };
        Traces::start(collector, source).map_err(|wrong| Failure::Io {
            what: format!("cannot begin to trace: {wrong}"),
            hint: "raise the limits on threads and open files, or leave --otlp out",
        })
    }
}
