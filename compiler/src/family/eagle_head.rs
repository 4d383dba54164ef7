//! What the head of an EAGLE draft adds to the family that it is built of.

/// What a head has beside its layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EagleHead {
    /// The projection of embedding and hidden state has a bias.
    pub fc_bias: bool,
    /// The first layer has a norm before attention.
    pub first_norm: bool,
}
