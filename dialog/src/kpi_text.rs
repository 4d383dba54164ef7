//! A dialog's times added up by kind of call, and the line of text that libGenie's log has of them.
//!
//! *Units*: durations here, milliseconds in the text, tokens per second for the two rates.
//!
//! *Source*: libGenie 1.21's log at level verbose, after each prompt and each reply.
//! *Deviation*: for a kind without samples libGenie writes 18446744073709552.00 as the minimum; here it is 0.00.

use std::fmt::Write;
use std::time::Duration;

use crate::kpi::QueryKpis;

/// Times of one kind of call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kpi {
    /// How many were measured.
    pub samples: u32,
    /// The last one.
    pub last: Duration,
    /// All of them added up.
    pub total: Duration,
    /// The shortest; zero without samples.
    pub min: Duration,
    /// The longest.
    pub max: Duration,
}

impl Kpi {
    /// The average; zero without samples.
    pub fn mean(&self) -> Duration {
        self.total.checked_div(self.samples).unwrap_or_default()
    }

    pub(crate) fn add(&mut self, took: Duration) {
        self.min = if self.samples == 0 { took } else { self.min.min(took) };
        self.max = self.max.max(took);
        self.last = took;
        self.total += took;
        self.samples += 1;
    }

    /// The line's part of this kind, `sep` between its figures.
    pub fn dump(&self, sep: &str) -> String {
        let ms = |d: Duration| d.as_secs_f64() * 1e3;
        format!(
            "last:{:.2}{sep}total:{:.2}{sep}min:{:.2}{sep}max:{:.2}{sep}avg:{:.2} (msec){sep}count:{}",
            ms(self.last),
            ms(self.total),
            ms(self.min),
            ms(self.max),
            ms(self.mean()),
            self.samples
        )
    }
}

/// Times of all kinds of calls of one dialog, and the rates of its last query.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Kpis {
    /// Making the dialog.
    pub init: Kpi,
    /// Prompts, up to the first token of the reply.
    pub prompt: Kpi,
    /// Replies, from their first token on.
    pub generate: Kpi,
    /// Saving the dialog.
    pub save: Kpi,
    /// Restoring one.
    pub restore: Kpi,
    /// Prompt tokens per second of the last query.
    pub tps_prompt: f64,
    /// Generated tokens per second of the last query, without the first.
    pub tps_generate: f64,
}

impl Kpis {
    /// The line that libGenie logs; `sep` stands between the kinds.
    pub fn dump(&self, sep: &str) -> String {
        let kinds = [
            ("init", self.init),
            ("prompt", self.prompt),
            ("generate", self.generate),
            ("save", self.save),
            ("restore", self.restore),
        ];
        let mut text = String::new();
        for (name, kpi) in kinds {
            // Figures of one kind are always a blank apart.
            write!(text, "{name}:[{}]{sep}", kpi.dump(" ")).expect("a String takes all text");
        }
        write!(text, " tps-prompt:{:.2} tps-generate:{:.2}", self.tps_prompt, self.tps_generate)
            .expect("a String takes all text");
        text
    }

    pub(crate) fn queried(&mut self, query: &QueryKpis) {
        if let Some(took) = query.time_to_first_token.or(query.prefill_time) {
            self.prompt.add(took);
        }
        if query.time_to_first_token.is_some() {
            self.generate.add(query.generation_time);
        }
        self.tps_prompt = query.prompt_rate().unwrap_or(0.0);
        self.tps_generate = query.generation_rate().unwrap_or(0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_is_libgenies() {
        let us = Duration::from_micros;
        let mut kpis = Kpis::default();
        kpis.init.add(us(50));
        kpis.init.add(us(81_120));
        kpis.queried(&QueryKpis {
            n_prompt: 6,
            n_generated: 3,
            time_to_first_token: Some(us(767_130)),
            generation_time: us(120_210),
            ..QueryKpis::default()
        });
        // As logged by libGenie 1.21, except the two figures in brackets of no samples (and the smallest time, cut there).
        let empty = "last:0.00 total:0.00 min:0.00 max:0.00 avg:0.00 (msec) count:0";
        let want = format!(
            "init:[last:81.12 total:81.17 min:0.05 max:81.12 avg:40.59 (msec) count:2] \
             prompt:[last:767.13 total:767.13 min:767.13 max:767.13 avg:767.13 (msec) count:1] \
             generate:[last:120.21 total:120.21 min:120.21 max:120.21 avg:120.21 (msec) count:1] \
             save:[{empty}] restore:[{empty}]  tps-prompt:7.82 tps-generate:16.64"
        );
        assert_eq!(kpis.dump(" "), want);
        assert!(kpis.dump(", ").starts_with("init:[last:81.12 total:81.17 "));
        assert!(kpis.dump(", ").contains("count:2], prompt:["));
    }

    #[test]
    fn samples_mean_and_last() {
        let mut kpi = Kpi::default();
        assert_eq!((kpi.samples, kpi.mean(), kpi.last), (0, Duration::ZERO, Duration::ZERO));
        for ms in [4, 1, 7] {
            kpi.add(Duration::from_millis(ms));
        }
        let ms = Duration::from_millis;
        assert_eq!((kpi.samples, kpi.mean(), kpi.last, kpi.min, kpi.max), (3, ms(4), ms(7), ms(1), ms(7)));
    }

    #[test]
    fn a_query_without_reply_counts_as_prompt_only() {
        let mut kpis = Kpis::default();
        let prefill_time = Some(Duration::from_millis(500));
        kpis.queried(&QueryKpis { n_prompt: 10, prefill_time, ..QueryKpis::default() });
        assert_eq!((kpis.prompt.samples, kpis.generate.samples, kpis.tps_prompt), (1, 0, 20.0));
    }
}
