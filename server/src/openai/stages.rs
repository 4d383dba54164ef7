//! llama.cpp's further stages of sampling, by its keys: DRY, XTC, mirostat, dynamic temperature, and the order of all.

use open_genie::sampler::{Chain, Mirostat, MirostatVersion, Stage};

use crate::error::ApiError;
use crate::schema::keys;

/// Most texts that break a repetition, and most characters of one: each is looked for in the whole vocabulary.
const MOST_BREAKERS: usize = 64;
const LONGEST_BREAKER: usize = 40;

keys! {
    /// What a request says; what it leaves out is as in the bundle's config.
    pub(crate) struct Stages {
        min_p: Option<f32>,
        typical_p: Option<f32>,
        top_n_sigma: Option<f32>,
        dry_multiplier: Option<f32>,
        dry_base: Option<f32>,
        dry_allowed_length: Option<i64>,
        /// -1 looks at all tokens.
        dry_penalty_last_n: Option<i64>,
        dry_sequence_breakers: Option<Vec<String>>,
        xtc_probability: Option<f32>,
        xtc_threshold: Option<f32>,
        dynatemp_range: Option<f32>,
        dynatemp_exponent: Option<f32>,
        /// 0, 1 or 2.
        mirostat: Option<i64>,
        mirostat_tau: Option<f32>,
        mirostat_eta: Option<f32>,
        /// Names of stages in their order.
        samplers: Option<Vec<String>>,
    }
}

impl Stages {
    /// Whether the request says anything of them.
    pub(crate) fn is_empty(&self) -> bool {
        let numbers = [
            self.min_p,
            self.typical_p,
            self.top_n_sigma,
            self.dry_multiplier,
            self.dry_base,
            self.xtc_probability,
            self.xtc_threshold,
            self.dynatemp_range,
            self.dynatemp_exponent,
            self.mirostat_tau,
            self.mirostat_eta,
        ];
        let whole = [self.dry_allowed_length, self.dry_penalty_last_n, self.mirostat];
        numbers.iter().all(Option::is_none)
            && whole.iter().all(Option::is_none)
            && self.dry_sequence_breakers.is_none()
            && self.samplers.is_none()
    }

    /// Changes what the request says.
    pub(crate) fn apply(&self, chain: &mut Chain) -> Result<(), ApiError> {
        set(&mut chain.min_p, self.min_p);
        set(&mut chain.typical_p, self.typical_p);
        set(&mut chain.top_n_sigma, self.top_n_sigma);
        set(&mut chain.dry.multiplier, self.dry_multiplier);
        set(&mut chain.dry.base, self.dry_base);
        if let Some(n) = self.dry_allowed_length {
            let found = usize::try_from(n).ok();
            chain.dry.allowed_length = found.ok_or_else(|| bad("dry_allowed_length", "a number of at least 0", n))?;
        }
        if let Some(n) = self.dry_penalty_last_n {
            chain.dry.last_n = match n {
                -1 => None,
                n => Some(usize::try_from(n).map_err(|_| bad("dry_penalty_last_n", "-1 or more", n))?),
            };
        }
        if let Some(breakers) = &self.dry_sequence_breakers {
            if breakers.len() > MOST_BREAKERS || breakers.iter().any(|text| text.chars().count() > LONGEST_BREAKER) {
                let message = format!(
                    "`dry_sequence_breakers`: expected at most {MOST_BREAKERS} texts of at most {LONGEST_BREAKER} characters"
                );
                return Err(ApiError::invalid("dry_sequence_breakers", message));
            }
            chain.dry.breakers.clone_from(breakers);
        }
        set(&mut chain.xtc.probability, self.xtc_probability);
        set(&mut chain.xtc.threshold, self.xtc_threshold);
        set(&mut chain.dynamic_temp.range, self.dynatemp_range);
        set(&mut chain.dynamic_temp.exponent, self.dynatemp_exponent);
        match self.mirostat {
            None => {}
            Some(0) => chain.mirostat = None,
            Some(1) => chain.mirostat = Some(Mirostat::new(MirostatVersion::One)),
            Some(2) => chain.mirostat = Some(Mirostat::new(MirostatVersion::Two)),
            Some(n) => return Err(bad("mirostat", "0, 1 or 2", n)),
        }
        if let Some(mirostat) = &mut chain.mirostat {
            set(&mut mirostat.tau, self.mirostat_tau);
            set(&mut mirostat.eta, self.mirostat_eta);
        }
        if let Some(names) = &self.samplers {
            let order = Stage::parse_order(&names.join(";"));
            chain.order = order.map_err(|error| ApiError::invalid("samplers", format!("`samplers`: {error}")))?;
        }
        Ok(())
    }

    /// The request's key of a setting.
    pub(crate) fn key(setting: &str) -> &'static str {
        match setting {
            "min-p" => "min_p",
            "typical" => "typical_p",
            "top-n-sigma" => "top_n_sigma",
            "dry-multiplier" => "dry_multiplier",
            "dry-base" => "dry_base",
            "xtc-probability" => "xtc_probability",
            "xtc-threshold" => "xtc_threshold",
            "dynatemp-range" => "dynatemp_range",
            "dynatemp-exp" => "dynatemp_exponent",
            "mirostat-ent" => "mirostat_tau",
            "mirostat-lr" => "mirostat_eta",
            _ => "logit_bias",
        }
    }
}

fn set(to: &mut f32, given: Option<f32>) {
    *to = given.unwrap_or(*to);
}

fn bad(key: &'static str, expected: &str, found: i64) -> ApiError {
    ApiError::invalid(key, format!("`{key}`: expected {expected}, found {found}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_reach_their_stages() {
        let stages: Stages = serde_json::from_value(json!({
            "dry_multiplier": 0.5, "dry_penalty_last_n": -1, "dry_allowed_length": 3, "xtc_probability": 0.2,
            "dynatemp_range": 0.3, "mirostat": 2, "mirostat_tau": 4.0, "samplers": ["top_k", "temperature"],
        }))
        .expect("it is good");
        let mut chain = Chain::default();
        chain.dry.last_n = Some(7);
        stages.apply(&mut chain).expect("it is good");
        assert_eq!((chain.dry.multiplier, chain.dry.last_n, chain.dry.allowed_length), (0.5, None, 3));
        assert_eq!((chain.xtc.probability, chain.dynamic_temp.range), (0.2, 0.3));
        assert_eq!(chain.mirostat.map(|m| (m.version, m.tau)), Some((MirostatVersion::Two, 4.0)));
        assert_eq!(chain.order, [Stage::TopK, Stage::Temperature]);
        assert!(!stages.is_empty() && Stages::default().is_empty());
        for wrong in [json!({"mirostat": 3}), json!({"samplers": ["best"]}), json!({"dry_allowed_length": -1})] {
            let stages: Stages = serde_json::from_value(wrong).expect("it is read");
            assert!(stages.apply(&mut Chain::default()).is_err());
        }
    }
}
