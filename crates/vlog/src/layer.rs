// SPDX-License-Identifier: Apache-2.0
//! The bridge from `tracing` events to the logger.

use std::fmt::{self, Write};
use std::sync::Arc;

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

use crate::level::Level;
use crate::logger::Logger;

/// A layer that turns events into lines of a [`Logger`].
///
/// A call site below all thresholds of its module costs one load: changes of the thresholds make
/// `tracing` ask again. Events at TRACE are not shown, since OVS has no such level.
#[derive(Clone, Debug)]
pub struct VlogLayer {
    logger: Arc<Logger>,
}

impl VlogLayer {
    /// A layer over `logger`.
    pub fn new(logger: Arc<Logger>) -> VlogLayer {
        VlogLayer { logger }
    }

    fn wants(&self, metadata: &Metadata<'_>) -> bool {
        if metadata.is_span() {
            return false;
        }
        Level::from_tracing(metadata.level())
            .is_some_and(|level| level <= self.logger.module_of(metadata.target()).max_level())
    }
}

impl<S: Subscriber> Layer<S> for VlogLayer {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.wants(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        self.wants(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        // Modules yet to come may have any threshold; only TRACE is out for good.
        Some(LevelFilter::DEBUG)
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        let Some(level) = Level::from_tracing(metadata.level()) else {
            return;
        };
        let module = self.logger.module_of(metadata.target());
        if level > module.max_level() {
            return;
        }
        let mut text = Text::default();
        event.record(&mut text);
        text.message.push_str(&text.fields);
        self.logger.log_module(&module, level, &text.message);
    }
}

/// An event as text: the message, then its other fields as `, name=value`.
#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a String fails only if `value`'s own code says so; what it wrote stays.
        let _ = if field.name() == "message" {
            write!(self.message, "{value:?}")
        } else {
            write!(self.fields, ", {}={value:?}", field.name())
        };
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            self.message.push_str(value);
        } else {
            let _ = write!(self.fields, ", {}={value}", field.name());
        }
    }
}
