//! The parts that families choose from: activations, norms and where they lie, factors, windows, positions of a layer.

/// The function between the linear layers of the feed-forward part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `x * sigmoid(x)`.
    Silu,
    /// GELU by its approximation with tanh.
    GeluTanh,
    /// GELU by the error function.
    Gelu,
    /// `max(x, 0)`.
    Relu,
}

impl Activation {
    /// Names of `hidden_act`, the usual one first.
    pub(crate) const NAMES: [(&'static str, Self); 8] = [
        ("silu", Self::Silu),
        ("swish", Self::Silu),
        ("swiglu", Self::Silu),
        ("gelu_pytorch_tanh", Self::GeluTanh),
        ("gelu_new", Self::GeluTanh),
        ("gelu_fast", Self::GeluTanh),
        ("gelu", Self::Gelu),
        ("relu", Self::Relu),
    ];

    /// The activation of that name.
    pub(crate) fn by_name(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, activation)| *activation)
    }

    /// Its usual name.
    pub(crate) fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, activation)| *activation == self).map_or("", |(name, _)| name)
    }
}

/// What a norm computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormKind {
    /// Root mean square, times the weight.
    Rms,
    /// Root mean square, times the weight plus one.
    RmsPlusOne,
    /// Mean and variance, times the weight, plus a bias.
    Layer,
}

/// Where a layer has norms of the width of the residual stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormPlace {
    /// Before attention and feed-forward part.
    Before,
    /// After them, before they are added to the residual stream.
    After,
    /// On both sides.
    Both,
}

impl NormPlace {
    /// True where attention and feed-forward part begin with a norm.
    pub const fn before(self) -> bool {
        !matches!(self, Self::After)
    }

    /// True where they end with one.
    pub const fn after(self) -> bool {
        !matches!(self, Self::Before)
    }
}

/// Norms on queries and keys before the rotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QkNorm {
    /// None.
    None,
    /// Of each head.
    Heads,
    /// Of all heads of a token together.
    Whole,
}

/// Factors and bounds on the way through the model; one that changes nothing is 1, or `None`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Factors {
    /// Of the embedding.
    pub embedding: f64,
    /// Of what a layer's two halves add to the residual stream.
    pub residual: f64,
    /// Of the attention scores.
    pub scores: f64,
    /// Bound of the scores: `s` becomes `cap * tanh(s / cap)`.
    pub scores_cap: Option<f64>,
    /// Of the logits, before they are bounded.
    pub logits: f64,
    /// Bound of the logits.
    pub logits_cap: Option<f64>,
}

impl Factors {
    /// Scores by the width of a head, nothing else.
    pub(crate) fn plain(head_dim: usize) -> Self {
        Self {
            embedding: 1.0,
            residual: 1.0,
            scores: 1.0 / (head_dim as f64).sqrt(),
            scores_cap: None,
            logits: 1.0,
            logits_cap: None,
        }
    }
}

/// Attention of some layers that sees this many tokens, the new one among them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// Tokens.
    pub tokens: usize,
    /// The layers that have it.
    pub layers: Vec<bool>,
}
