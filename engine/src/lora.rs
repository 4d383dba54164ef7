//! LoRA adapters of a loaded model: which are applied, how strong each is, and what changes when that does.
//!
//! An adapter's weights are in the graphs, multiplied by strengths that are inputs (`ModelLayout::alphas`), or they are sections
//! of a context binary that replace its own. Switching writes a few numbers, or hands over sections; nothing is compiled.
//!
//! *Rules*: an adapter that is applied has strength 1 unless another was asked for, before or after; all others have 0. Under
//! policy `genie` strengths are 0 until set, are set only once an adapter was applied, and stay when another is, as in libGenie.
//! *Cache*: rows stay as they were computed; a caller that wants them computed by the new adapter resets first.

use std::time::{Duration, Instant};

use nsp_graph::{InputRole, ModelLayout};

use crate::io::{BufferRole, IoBuffers};
use crate::quant::{QuantParams, Rounding};
use crate::{Engine, EngineError, Executor, LoraAdapter, LoraConfig, TokenModel};

/// What became of applying adapters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoraSwitch {
    /// Time that it took.
    pub took: Duration,
    /// Tokens in the cache whose rows were computed with the adapters before, and stay.
    pub n_kept: usize,
}

/// A model with adapters, as a dialog sees it.
pub trait LoraModel {
    /// The adapters that the bundle has.
    fn lora_adapters(&self) -> &[LoraAdapter];

    /// The names of the strengths, which are inputs of the graphs.
    fn lora_alphas(&self) -> &[String];

    /// Applies these adapters and no others, with a strength or with the one asked for before (1 at first). An empty list is the
    /// model without adapters.
    ///
    /// # Errors
    ///
    /// [`EngineError::UnknownAdapter`], [`EngineError::LoraStrength`], [`EngineError::SharedAlpha`]: nothing has changed;
    /// [`EngineError::Sections`] and others where sections are read: the adapters before are no longer whole, apply them again.
    fn apply_lora(&mut self, wanted: &[(&str, Option<f32>)]) -> Result<LoraSwitch, EngineError>;

    /// Sets a strength by the name of its input. It acts while an adapter that has it is applied, and is remembered.
    ///
    /// # Errors
    ///
    /// [`EngineError::UnknownAlpha`], [`EngineError::LoraStrength`].
    fn set_lora_strength(&mut self, alpha: &str, strength: f32) -> Result<(), EngineError>;
}

/// Adapters and strengths of an engine.
#[derive(Debug)]
pub(crate) struct Lora {
    config: LoraConfig,
    /// By alpha of the layout: the strength asked for.
    asked: Vec<Option<f32>>,
    /// By alpha of the layout: the strength that the graphs read.
    now: Vec<f32>,
    /// Adapters that are applied, by their number in the configuration.
    applied: Vec<usize>,
    /// The group whose sections the graphs have.
    group: Option<usize>,
}

impl Lora {
    /// No adapter is applied. Adapters name strengths that graphs have; libGenie takes others as well, without effect.
    pub(crate) fn new(
        config: LoraConfig,
        layout: &ModelLayout,
        io: &mut IoBuffers,
        as_genie: bool,
    ) -> Result<Self, EngineError> {
        for alpha in config.adapters.iter().flat_map(|a| &a.alphas) {
            if !layout.alphas.contains(alpha) {
                let unknown = unknown_alpha(alpha, layout);
                if !as_genie {
                    return Err(unknown);
                }
                tracing::warn!("{unknown}");
            }
        }
        let n = layout.alphas.len();
        let lora = Self { config, asked: vec![None; n], now: vec![0.0; n], applied: Vec::new(), group: None };
        (0..n).for_each(|alpha| write(io, alpha, 0.0));
        Ok(lora)
    }

    /// True if one of the applied adapters has the strength, or if no adapter has it at all.
    fn acts(&self, alpha: &str) -> bool {
        let has = |a: &LoraAdapter| a.alphas.iter().any(|name| name == alpha);
        let mut adapters = self.config.adapters.iter();
        self.applied.iter().any(|&a| has(&self.config.adapters[a])) || !adapters.any(has)
    }

    /// What the cache's rows are computed with now: the applied adapters with their strengths; empty for none.
    pub(crate) fn label(&self, layout: &ModelLayout) -> String {
        fn named<'a>(lora: &Lora, layout: &ModelLayout, name: &'a String) -> Option<(&'a String, f32)> {
            layout.alphas.iter().position(|a| a == name).map(|i| (name, lora.now[i]))
        }
        let strength = |name| named(self, layout, name);
        let one = |&a: &usize| {
            let adapter = &self.config.adapters[a];
            let strengths: Vec<_> = adapter.alphas.iter().filter_map(strength).collect();
            if adapter.bin_sections.is_empty() && strengths.iter().all(|(_, s)| *s == 0.0) {
                return None;
            }
            Some(match &strengths[..] {
                [] => adapter.name.clone(),
                [(_, first), rest @ ..] if rest.iter().all(|(_, s)| s == first) => format!("{}:{first}", adapter.name),
                several => {
                    let each: Vec<String> = several.iter().map(|(name, s)| format!("{name}:{s}")).collect();
                    format!("{} ({})", adapter.name, each.join(", "))
                }
            })
        };
        let mut parts: Vec<String> = self.applied.iter().filter_map(one).collect();
        let lone = |alpha: &&String| !self.config.adapters.iter().any(|a| a.alphas.contains(alpha));
        let lone = layout.alphas.iter().filter(lone).filter_map(strength).filter(|(_, s)| *s != 0.0);
        parts.extend(lone.map(|(name, s)| format!("{name}:{s}")));
        parts.join(", ")
    }
}

impl<X: Executor> Engine<X> {
    /// The adapters that rows are computed with now, with their strengths: `style:0.5`; empty for the model without adapters.
    pub fn lora_label(&self) -> String {
        self.lora.label(&self.graphs.layout)
    }

    fn put_strength(&mut self, alpha: usize, strength: f32) {
        self.lora.now[alpha] = strength;
        write(&mut self.graphs.io, alpha, strength);
    }

    /// The numbers of the adapters in the configuration.
    fn find_adapters(&self, wanted: &[(&str, Option<f32>)]) -> Result<Vec<usize>, EngineError> {
        let adapters = &self.lora.config.adapters;
        let mut found = Vec::with_capacity(wanted.len());
        for (name, strength) in wanted {
            let at = adapters.iter().position(|a| a.name == *name).ok_or_else(|| EngineError::UnknownAdapter {
                name: (*name).into(),
                known: adapters.iter().map(|a| a.name.clone()).collect(),
            })?;
            strength.map_or(Ok(()), |strength| finite(name, strength))?;
            if strength.is_some() && adapters[at].alphas.is_empty() {
                return Err(EngineError::NoStrength { adapter: (*name).into() });
            }
            let shares = |other: &&usize| {
                let alphas = |a: usize| &adapters[a].alphas;
                alphas(**other).iter().any(|alpha| alphas(at).contains(alpha))
                    || (!adapters[**other].bin_sections.is_empty() && !adapters[at].bin_sections.is_empty())
            };
            if let Some(&other) = found.iter().find(shares) {
                let (first, second) = (adapters[other].name.clone(), adapters[at].name.clone());
                return Err(EngineError::SharedAlpha { first, second });
            }
            found.push(at);
        }
        Ok(found)
    }

    /// Hands the sections of an adapter, and of its group where that is another one than before, to the backend.
    fn apply_sections(&mut self, adapter: usize) -> Result<(), EngineError> {
        let LoraConfig { adapters, groups, .. } = &self.lora.config;
        let LoraAdapter { name, bin_sections, .. } = &adapters[adapter];
        let group = groups.iter().position(|group| group.members.contains(name));
        let of_group = group.filter(|_| group != self.lora.group).map(|g| groups[g].quant_bin_sections.as_slice());
        let n_binaries = self.n_binaries();
        let lists = of_group.into_iter().chain([bin_sections.as_slice()]).filter(|list| !list.is_empty());
        if let Some(list) = lists.clone().find(|list| list.len() != n_binaries) {
            let (adapter, found) = (name.clone(), list.len());
            return Err(EngineError::SectionCount { adapter, expected: n_binaries, found });
        }
        for list in lists {
            for (binary, path) in list.iter().enumerate() {
                let failed = |source| EngineError::Sections { adapter: name.clone(), path: path.clone(), source };
                let bytes = std::fs::read(path).map_err(|e| failed(e.into()))?;
                self.graphs.executor.apply_sections(binary, &bytes).map_err(failed)?;
            }
        }
        self.lora.group = group;
        Ok(())
    }

    fn n_binaries(&self) -> usize {
        let graphs = self.graphs.layout.splits.iter().flat_map(|s| &s.graphs);
        graphs.map(|g| g.binary + 1).max().unwrap_or(0)
    }

    /// True while sections of some adapter are in the graphs.
    fn has_sections(&self) -> bool {
        self.lora.applied.iter().any(|&a| !self.lora.config.adapters[a].bin_sections.is_empty())
    }
}

impl<X: Executor> LoraModel for Engine<X> {
    fn lora_adapters(&self) -> &[LoraAdapter] {
        &self.lora.config.adapters
    }

    fn lora_alphas(&self) -> &[String] {
        &self.graphs.layout.alphas
    }

    fn apply_lora(&mut self, wanted: &[(&str, Option<f32>)]) -> Result<LoraSwitch, EngineError> {
        let began = Instant::now();
        if self.lora.config.adapters.is_empty() && !wanted.is_empty() {
            return Err(EngineError::NoAdapters { wanted: wanted[0].0.into() });
        }
        let found = self.find_adapters(wanted)?;
        let sections = found.iter().copied().find(|&a| !self.lora.config.adapters[a].bin_sections.is_empty());
        if sections.is_none() && self.has_sections() {
            let adapter = self.lora.config.adapters[self.lora.applied[0]].name.clone();
            return Err(EngineError::SectionsStay { adapter });
        }
        if let Some(adapter) = sections {
            self.apply_sections(adapter)?;
        }
        let as_genie = self.as_genie();
        for (&adapter, (_, strength)) in found.iter().zip(wanted) {
            let Some(strength) = strength else { continue };
            for alpha in &self.lora.config.adapters[adapter].alphas {
                if let Some(alpha) = self.graphs.layout.alphas.iter().position(|a| a == alpha) {
                    self.lora.asked[alpha] = Some(*strength);
                }
            }
        }
        self.lora.applied = found;
        for alpha in 0..self.graphs.layout.alphas.len() {
            let asked = self.lora.asked[alpha];
            let strength = match (as_genie, self.lora.acts(&self.graphs.layout.alphas[alpha])) {
                (true, _) => asked.unwrap_or(self.lora.now[alpha]),
                (false, true) if self.lora.config.adapters.is_empty() => asked.unwrap_or(0.0),
                (false, true) => asked.unwrap_or_else(|| self.default_strength(alpha)),
                (false, false) => 0.0,
            };
            self.put_strength(alpha, strength);
        }
        Ok(LoraSwitch { took: began.elapsed(), n_kept: self.n_past() })
    }

    fn set_lora_strength(&mut self, alpha: &str, strength: f32) -> Result<(), EngineError> {
        let at = self.graphs.layout.alphas.iter().position(|a| a == alpha);
        if self.as_genie() {
            // libGenie says nothing of a name that no graph has, and forgets what is set before an adapter is applied.
            if let Some(at) = at.filter(|_| !self.lora.applied.is_empty()) {
                self.lora.asked[at] = Some(strength);
                self.put_strength(at, strength);
            }
            return Ok(());
        }
        let at = at.ok_or_else(|| unknown_alpha(alpha, &self.graphs.layout))?;
        finite(alpha, strength)?;
        self.lora.asked[at] = Some(strength);
        if self.lora.acts(alpha) {
            self.put_strength(at, strength);
        }
        Ok(())
    }
}

impl<X: Executor> Engine<X> {
    /// Of a strength that acts and was never set: 1 for an adapter's, 0 for one that no adapter has.
    fn default_strength(&self, alpha: usize) -> f32 {
        let name = &self.graphs.layout.alphas[alpha];
        let is_adapters = self.lora.config.adapters.iter().any(|a| a.alphas.contains(name));
        if is_adapters { 1.0 } else { 0.0 }
    }
}

fn finite(name: &str, strength: f32) -> Result<(), EngineError> {
    if strength.is_finite() { Ok(()) } else { Err(EngineError::LoraStrength { name: name.into(), found: strength }) }
}

fn unknown_alpha(alpha: &str, layout: &ModelLayout) -> EngineError {
    EngineError::UnknownAlpha { name: alpha.into(), known: layout.alphas.clone() }
}

/// Writes a strength to every buffer that holds it, in the buffer's type.
fn write(io: &mut IoBuffers, alpha: usize, strength: f32) {
    for buffer in 0..io.buffers.len() {
        let BufferRole::Input(InputRole::Alpha(found), dtype, quant) = &io.roles()[buffer] else { continue };
        if *found == alpha {
            let params = QuantParams::of(*dtype, quant).expect("the layout checks types of strengths");
            let strength = std::iter::repeat(f64::from(strength));
            params.encode(strength, Rounding::Nearest, io.buffers[buffer].bytes_mut());
        }
    }
}
