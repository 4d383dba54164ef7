//! Numbers that no rotation can have, named by the keys of Genie's `positional-encoding`.

use super::{Llama3Scaling, LongRopeScaling, RopeConfig, RopeScaling, YarnScaling};

/// A number that cannot be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RopeProblem {
    /// The key of `positional-encoding` or of its `rope-scaling`.
    pub key: &'static str,
    /// True for a key of `rope-scaling`.
    pub of_scaling: bool,
    /// What it should be.
    pub expected: String,
    /// What it is.
    pub found: String,
}

/// Collects problems.
struct Problems(Vec<RopeProblem>);

impl RopeConfig {
    /// Everything that is wrong with the numbers; a table can be computed if the list is empty.
    pub fn problems(&self) -> Vec<RopeProblem> {
        let mut out = Problems(Vec::new());
        if self.rope_dim == 0 {
            out.add("rope-dim", "at least 1", 0);
        }
        out.positive("rope-theta", self.theta);
        for problem in &mut out.0 {
            problem.of_scaling = false;
        }
        match &self.scaling {
            None | Some(RopeScaling::Hunyuan) => {}
            Some(RopeScaling::Linear { factor }) => out.positive("factor", *factor),
            Some(RopeScaling::Llama3(llama3)) => out.llama3(llama3),
            Some(RopeScaling::LongRope(long)) => out.longrope(long, self.rope_dim),
            Some(RopeScaling::Yarn(yarn)) => out.yarn(yarn, self.theta),
            Some(RopeScaling::Proportional { factor, partial_rotary_factor: part }) => {
                out.positive("factor", *factor);
                if !(0.0..=1.0).contains(part) {
                    out.add("partial-rotary-factor", "a number from 0 to 1", part);
                }
            }
            Some(RopeScaling::Mrope { interleaved, sections }) => out.mrope(*interleaved, sections, self.rope_dim),
        }
        out.0
    }
}

impl Problems {
    fn add(&mut self, key: &'static str, expected: impl Into<String>, found: impl ToString) {
        let (expected, found) = (expected.into(), found.to_string());
        self.0.push(RopeProblem { key, of_scaling: true, expected, found });
    }

    fn positive(&mut self, key: &'static str, x: f64) {
        if !(x.is_finite() && x > 0.0) {
            self.add(key, "a finite number above 0", x);
        }
    }

    fn llama3(&mut self, scaling: &Llama3Scaling) {
        let Llama3Scaling { factor, low_freq_factor: low, high_freq_factor: high, original_max_position } = *scaling;
        self.positive("factor", factor);
        self.positive("low-freq-factor", low);
        self.positive("high-freq-factor", high);
        self.positive("original-max-position-embeddings", original_max_position);
        if low >= high {
            self.add("high-freq-factor", format!("more than `low-freq-factor`, {low}"), high);
        }
    }

    fn longrope(&mut self, scaling: &LongRopeScaling, rope_dim: usize) {
        let LongRopeScaling { factor, original_max_position: original, short_factor, long_factor } = scaling;
        self.positive("factor", *factor);
        self.positive("original-max-position-embeddings", *original);
        if *factor > 1.0 && *original <= 1.0 {
            // The amplitude divides by its logarithm.
            self.add("original-max-position-embeddings", "more than 1", original);
        }
        for (key, divisors) in [("short-factor", short_factor), ("long-factor", long_factor)] {
            if divisors.len() != rope_dim {
                let expected = format!("{rope_dim} numbers, one for each angle of `rope-dim`");
                self.add(key, expected, divisors.len());
            } else if let Some(bad) = divisors.iter().find(|x| !(x.is_finite() && **x > 0.0)) {
                self.add(key, "finite numbers above 0", bad);
            }
        }
    }

    fn yarn(&mut self, scaling: &YarnScaling, theta: f64) {
        let YarnScaling { factor, original_max_position, dim, extrapolation_factor, attn_factor, beta_fast, beta_slow } =
            *scaling;
        self.positive("factor", factor);
        self.positive("original-max-position-embeddings", original_max_position);
        self.positive("attn-factor", attn_factor);
        self.positive("beta-fast", beta_fast);
        self.positive("beta-slow", beta_slow);
        if dim == 0 || !dim.is_multiple_of(2) {
            self.add("dim", "an even number above 0, twice `rope-dim`", dim);
        }
        if !(extrapolation_factor.is_finite() && extrapolation_factor >= 0.0) {
            self.add("extrapolation-factor", "a finite number of at least 0", extrapolation_factor);
        }
        if beta_fast < beta_slow {
            self.add("beta-fast", format!("at least `beta-slow`, {beta_slow}"), beta_fast);
        }
        if theta <= 1.0 {
            // Where an angle turns `beta` times is found by the logarithm of theta.
            self.0.push(RopeProblem {
                key: "rope-theta",
                of_scaling: false,
                expected: "more than 1 for `yarnrope`".into(),
                found: theta.to_string(),
            });
        }
    }

    fn mrope(&mut self, interleaved: bool, sections: &[usize], rope_dim: usize) {
        if sections.is_empty() {
            return;
        }
        let sum = sections.iter().fold(0usize, |sum, n| sum.saturating_add(*n));
        let fits = sum == rope_dim || (interleaved && sum.saturating_mul(2) == rope_dim);
        if sections.len() != 3 || !fits {
            let half = if interleaved { ", or to half of it" } else { "" };
            let expected = format!("3 numbers that add up to `rope-dim`, {rope_dim}{half}");
            self.add("mrope-section", expected, format!("{sections:?}"));
        }
    }
}
