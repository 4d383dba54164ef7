//! Stages beyond Genie's `sampler` block: what they are asked to do, and in which order all of them act.
//!
//! | stage | acts where | what it does |
//! |---|---|---|
//! | logit bias | a bias is given; always first | adds to the logits of single tokens |
//! | `penalties` | `last_n` above 0 | [`TokenPenalty`](super::TokenPenalty) |
//! | `dry` | `multiplier` is not 0 | lowers the tokens that would go on with a repetition |
//! | `top_n_sigma` | above 0 | keeps logits within a number of standard deviations of the largest |
//! | `top_k` | above 0 | keeps the largest |
//! | `typ_p` | below 1 | keeps the tokens whose surprise is nearest to the expected one |
//! | `top_p` | below 1 | keeps the likeliest up to a total probability |
//! | `min_p` | above 0 | keeps those at least so likely as a part of the likeliest |
//! | `xtc` | `probability` above 0 | by chance, removes all but the last of the likely ones |
//! | `temperature` | always | divides the logits, by a number that follows the entropy if `dynamic_temp` says so |
//!
//! With [`Mirostat`] the stages that cut (`top_n_sigma` to `xtc`) are left out, and it cuts.
//!
//! *Order*: [`Stage::ORDER`] is llama.cpp's, and Genie's where Genie has the stage; a stage that an order leaves out does not act.
//! While none of these stages is asked for and the order is that one, tokens are drawn as libGenie draws them, bit for bit.
//!
//! *Source*: names and defaults are those of llama.cpp's command line; DRY, XTC, typical sampling, top-n-sigma and mirostat as
//! their authors describe them, mirostat's surprise taken from the renormalised distribution as llama.cpp does.

use genie_types::TokenId;

use super::settings::SettingsError;

/// A stage of the chain, by llama.cpp's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Repetition, presence and frequency.
    Penalties,
    /// Repetitions of whole sequences.
    Dry,
    /// Standard deviations below the largest logit.
    TopNSigma,
    /// A number of tokens.
    TopK,
    /// Typical probability.
    Typical,
    /// A total probability.
    TopP,
    /// A part of the largest probability.
    MinP,
    /// Likely ones removed by chance.
    Xtc,
    /// Temperature, fixed or dynamic.
    Temperature,
}

impl Stage {
    /// The order in which they act unless another one is set.
    pub const ORDER: [Self; 9] = [
        Self::Penalties,
        Self::Dry,
        Self::TopNSigma,
        Self::TopK,
        Self::Typical,
        Self::TopP,
        Self::MinP,
        Self::Xtc,
        Self::Temperature,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Penalties => "penalties",
            Self::Dry => "dry",
            Self::TopNSigma => "top_n_sigma",
            Self::TopK => "top_k",
            Self::Typical => "typ_p",
            Self::TopP => "top_p",
            Self::MinP => "min_p",
            Self::Xtc => "xtc",
            Self::Temperature => "temperature",
        }
    }

    /// Reads names separated by `;` or `,`, dashes as good as underscores.
    ///
    /// # Errors
    /// A name that is not there, or one that is there twice.
    pub fn parse_order(text: &str) -> Result<Vec<Self>, OrderError> {
        let mut order = Vec::new();
        for name in text.split([';', ',']).map(str::trim).filter(|name| !name.is_empty()) {
            let plain = name.replace('-', "_").to_lowercase();
            let stage = match plain.as_str() {
                "typical" | "typical_p" => Some(Self::Typical),
                "temp" => Some(Self::Temperature),
                "penalty" => Some(Self::Penalties),
                plain => Self::ORDER.into_iter().find(|stage| stage.name() == plain),
            };
            let stage = stage.ok_or_else(|| OrderError::Unknown { name: name.to_owned() })?;
            if order.contains(&stage) {
                return Err(OrderError::Twice { stage: stage.name() });
            }
            order.push(stage);
        }
        Ok(order)
    }
}

/// An order of stages that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OrderError {
    /// No stage has that name.
    #[error(
        "unknown sampler `{name}`, expected some of penalties, dry, top_n_sigma, top_k, typ_p, top_p, min_p, xtc, temperature"
    )]
    Unknown {
        /// What was given.
        name: String,
    },
    /// It would act twice.
    #[error("sampler `{stage}` stands in the order twice")]
    Twice {
        /// Its name.
        stage: &'static str,
    },
}

/// Lowers tokens that would go on with a sequence that was there before.
#[derive(Clone, Debug, PartialEq)]
pub struct Dry {
    /// The penalty of a repetition of `allowed_length`; 0 is off.
    pub multiplier: f32,
    /// By how much the penalty grows with each token more.
    pub base: f32,
    /// Repetitions shorter than this are free, in tokens.
    pub allowed_length: usize,
    /// How many of the last tokens are looked at; `None` is all.
    pub last_n: Option<usize>,
    /// Texts behind which nothing counts as a repetition of what stands before them.
    pub breakers: Vec<String>,
}

impl Default for Dry {
    fn default() -> Self {
        let breakers = ["\n", ":", "\"", "*"].map(str::to_owned).to_vec();
        Self { multiplier: 0.0, base: 1.75, allowed_length: 2, last_n: None, breakers }
    }
}

/// Removes the likeliest tokens by chance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Xtc {
    /// How often; 0 is off.
    pub probability: f32,
    /// Tokens at least this likely are removed, except the least likely of them; above 0.5 there is at most one.
    pub threshold: f32,
}

impl Default for Xtc {
    fn default() -> Self {
        Self { probability: 0.0, threshold: 0.1 }
    }
}

/// A temperature that grows with the entropy of the distribution: from `temp - range` to `temp + range`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DynamicTemp {
    /// 0 is off.
    pub range: f32,
    /// Of the entropy's share of the largest possible one.
    pub exponent: f32,
}

impl Default for DynamicTemp {
    fn default() -> Self {
        Self { range: 0.0, exponent: 1.0 }
    }
}

/// Cuts so that the surprise of the drawn tokens stays near a target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mirostat {
    /// 1 estimates how many tokens to keep from Zipf's law; 2 keeps those whose surprise is below a bound.
    pub version: MirostatVersion,
    /// The target, in bits.
    pub tau: f32,
    /// How fast the bound follows.
    pub eta: f32,
}

/// Which of its two algorithms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MirostatVersion {
    /// By the estimated exponent of Zipf's law.
    One,
    /// By the surprise itself.
    Two,
}

impl Mirostat {
    /// A version with llama.cpp's target and rate: 5 bits, 0.1.
    pub fn new(version: MirostatVersion) -> Self {
        Self { version, tau: 5.0, eta: 0.1 }
    }
}

/// The stages beyond Genie's, all off by default, and the order of all stages.
#[derive(Clone, Debug, PartialEq)]
pub struct Chain {
    /// Added to the logits of these tokens; minus infinity forbids one.
    pub logit_bias: Vec<(TokenId, f32)>,
    /// Keep tokens at least this likely as a part of the likeliest; 0 is off.
    pub min_p: f32,
    /// Typical probability; 1 is off.
    pub typical_p: f32,
    /// Keep logits within this many standard deviations of the largest; 0 is off.
    pub top_n_sigma: f32,
    /// Repetitions of sequences.
    pub dry: Dry,
    /// Likely tokens removed by chance.
    pub xtc: Xtc,
    /// Temperature by entropy.
    pub dynamic_temp: DynamicTemp,
    /// In place of the stages that cut.
    pub mirostat: Option<Mirostat>,
    /// The order; a stage that is missing does not act.
    pub order: Vec<Stage>,
}

impl Default for Chain {
    fn default() -> Self {
        Self {
            logit_bias: Vec::new(),
            min_p: 0.0,
            typical_p: 1.0,
            top_n_sigma: 0.0,
            dry: Dry::default(),
            xtc: Xtc::default(),
            dynamic_temp: DynamicTemp::default(),
            mirostat: None,
            order: Stage::ORDER.to_vec(),
        }
    }
}

impl Chain {
    /// Whether anything but Genie's own stages in Genie's order is asked for.
    pub fn is_active(&self) -> bool {
        !self.logit_bias.is_empty()
            || self.min_p > 0.0
            || self.typical_p < 1.0
            || self.top_n_sigma > 0.0
            || self.dry.multiplier != 0.0
            || self.xtc.probability > 0.0
            || self.dynamic_temp.range > 0.0
            || self.mirostat.is_some()
            || self.order != Stage::ORDER
    }

    /// Whether the bias leaves no chance to a token.
    pub fn forbids(&self, token: TokenId) -> bool {
        self.logit_bias.iter().any(|&(id, bias)| id == token && bias == f32::NEG_INFINITY)
    }

    /// Refuses numbers that no stage can work with.
    pub(super) fn check(&self) -> Result<(), SettingsError> {
        let unit = "a number from 0 to 1";
        let finite = "a finite number of at least 0";
        let numbers = [
            ("min-p", self.min_p, (0.0..=1.0).contains(&self.min_p), unit),
            ("typical", self.typical_p, (0.0..=1.0).contains(&self.typical_p), unit),
            ("top-n-sigma", self.top_n_sigma, self.top_n_sigma.is_finite(), "a finite number"),
            (
                "dry-multiplier",
                self.dry.multiplier,
                self.dry.multiplier >= 0.0 && self.dry.multiplier.is_finite(),
                finite,
            ),
            (
                "dry-base",
                self.dry.base,
                self.dry.base >= 1.0 && self.dry.base.is_finite(),
                "a finite number of at least 1",
            ),
            ("xtc-probability", self.xtc.probability, (0.0..=1.0).contains(&self.xtc.probability), unit),
            ("xtc-threshold", self.xtc.threshold, (0.0..=1.0).contains(&self.xtc.threshold), unit),
            (
                "dynatemp-range",
                self.dynamic_temp.range,
                self.dynamic_temp.range >= 0.0 && self.dynamic_temp.range.is_finite(),
                finite,
            ),
            (
                "dynatemp-exp",
                self.dynamic_temp.exponent,
                self.dynamic_temp.exponent >= 0.0 && self.dynamic_temp.exponent.is_finite(),
                finite,
            ),
        ];
        let miro = self.mirostat.map(|m| {
            [
                ("mirostat-ent", m.tau, m.tau > 0.0 && m.tau.is_finite(), "a finite number above 0"),
                ("mirostat-lr", m.eta, m.eta >= 0.0 && m.eta.is_finite(), finite),
            ]
        });
        let biases = self.logit_bias.iter().map(|&(_, bias)| {
            ("logit-bias", bias, !bias.is_nan() && bias != f32::INFINITY, "a number, or -inf to forbid the token")
        });
        for (key, value, is_fine, expected) in numbers.into_iter().chain(miro.into_iter().flatten()).chain(biases) {
            if !is_fine {
                return Err(SettingsError { key, value: f64::from(value), expected });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_read_by_any_of_their_names() {
        let order = Stage::parse_order("top-k; temp,typical").unwrap();
        assert_eq!(order, [Stage::TopK, Stage::Temperature, Stage::Typical]);
        let all = Stage::ORDER.map(Stage::name).join(";");
        assert_eq!(Stage::parse_order(&all).unwrap(), Stage::ORDER);
        assert_eq!(
            Stage::parse_order("top_k;top-k").unwrap_err().to_string(),
            "sampler `top_k` stands in the order twice"
        );
        assert!(
            Stage::parse_order("infill").unwrap_err().to_string().starts_with("unknown sampler `infill`, expected")
        );
    }

    #[test]
    fn a_number_out_of_range_is_named() {
        let mut chain = Chain { min_p: 1.5, ..Chain::default() };
        assert_eq!(chain.check().unwrap_err().to_string(), "`min-p` is 1.5, expected a number from 0 to 1");
        chain = Chain { logit_bias: vec![(TokenId(1), f32::INFINITY)], ..Chain::default() };
        assert_eq!(chain.check().unwrap_err().key, "logit-bias");
        assert!(!Chain::default().is_active());
        assert!(Chain { order: vec![Stage::TopK], ..Chain::default() }.is_active());
    }
}
