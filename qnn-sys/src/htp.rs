//! The HTP device config, written so that libraries on both sides of a layout change read the same SoC.
//!
//! Headers up to QAIRT 2.40 put the union right behind the option (offset 4, size 12); the running 2.51 has it at
//! offset 8 (size 16). With the SoC number in both places, either reader finds it.

/// The option number of [`SocConfig`].
pub const OPTION_SOC: u32 = 0;

/// `QnnHtpDevice_CustomConfig_t` with option SOC, for old and new libraries alike.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocConfig {
    option: u32,
    soc_at_4: u32,
    soc_at_8: u32,
    zero: u32,
}

const _: () = assert!(size_of::<SocConfig>() == 16 && align_of::<SocConfig>() == 8);

impl SocConfig {
    /// `soc` is Qualcomm's number: 43 SM8550, 57 SM8650, 69 SM8750, 87 SM8850, 60 X Elite, 30 SM8350.
    pub const fn new(soc: u32) -> Self {
        Self { option: OPTION_SOC, soc_at_4: soc, soc_at_8: soc, zero: 0 }
    }

    /// The SoC number.
    pub const fn soc(&self) -> u32 {
        self.soc_at_8
    }
}
