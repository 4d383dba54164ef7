//! Which chips there are: Qualcomm's number of each, its DSP's architecture, its VTCM.
//!
//! *Units*: MB of VTCM. *Source*: numbers 30, 43, 57, 60, 69, 87 were measured with libQnnHtp 2.51; the others
//! and the VTCM sizes are those that public integrations of QNN (ExecuTorch's table) state. Kernel numbers are those of
//! Linux' `qcom,ids.h`, which `/sys/devices/soc0/soc_id` shows on a device.

/// A chip with a Hexagon DSP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Soc {
    /// The name in upper case, `SM8650`.
    pub name: &'static str,
    /// Other names, in lower case.
    pub aliases: &'static [&'static str],
    /// Qualcomm's number, as in a binary or in a device config; unknown for chips that no HTP library serves.
    pub id: Option<u32>,
    /// The numbers that a Linux kernel shows.
    pub kernel_ids: &'static [u32],
    /// Architecture of its DSP: 75 for V75.
    pub dsp_arch: u32,
    /// Vector memory of its DSP in MB; 0 for chips without.
    pub vtcm_mb: u32,
}

/// The first architecture with the tensor units that HTP needs.
pub const FIRST_HTP_ARCH: u32 = 68;
/// The first architecture that runs float16 graphs.
pub const FIRST_FLOAT16_ARCH: u32 = 73;

/// All of them, phones by age first.
pub const SOCS: &[Soc] = &[
    soc("SDM845", &[], None, &[321], 65, 0),
    soc("SM8150", &[], None, &[339], 66, 0),
    soc("SM8250", &[], None, &[356], 66, 0),
    soc("SM8350", &[], Some(30), &[439], 68, 4),
    soc("SM8450", &[], Some(36), &[457], 69, 8),
    soc("SM8475", &[], Some(42), &[530, 531, 540], 69, 8),
    soc("SM8550", &[], Some(43), &[519], 73, 8),
    soc("SM8650", &[], Some(57), &[557, 577], 75, 8),
    soc("SM8750", &[], Some(69), &[618], 79, 8),
    soc("SM8845", &[], Some(97), &[], 81, 8),
    soc("SM8850", &[], Some(87), &[660], 81, 8),
    soc("SC8380XP", &["x-elite", "x1e80100"], Some(60), &[555], 73, 8),
    soc("QCM6490", &["qcs6490"], Some(93), &[497, 498], 68, 2),
    soc("QCS9100", &["sa8775p"], Some(77), &[534, 667], 73, 8),
    soc("SA8255", &["sa8255p"], Some(52), &[], 73, 8),
    soc("SA8295", &["sa8295p"], Some(39), &[], 68, 8),
    soc("SA8540", &["sa8540p"], Some(62), &[461], 68, 8),
    soc("SA8797", &[], Some(72), &[], 81, 16),
    soc("SSG2115P", &[], Some(46), &[], 73, 2),
    soc("SSG2125P", &[], Some(58), &[], 73, 2),
    soc("SXR1230P", &[], Some(45), &[], 73, 2),
    soc("SXR2230P", &[], Some(53), &[], 69, 8),
    soc("SXR2330P", &[], Some(75), &[], 79, 8),
    soc("SAR2230P", &[], Some(95), &[], 81, 4),
    soc("SW6100", &[], Some(96), &[], 81, 4),
];

const fn soc(
    name: &'static str,
    aliases: &'static [&'static str],
    id: Option<u32>,
    kernel_ids: &'static [u32],
    dsp_arch: u32,
    vtcm_mb: u32,
) -> Soc {
    Soc { name, aliases, id, kernel_ids, dsp_arch, vtcm_mb }
}

impl Soc {
    /// By name or alias, whatever the case.
    pub fn by_name(name: &str) -> Option<&'static Self> {
        let name = name.to_lowercase();
        SOCS.iter().find(|soc| soc.name.to_lowercase() == name || soc.aliases.contains(&name.as_str()))
    }

    /// By Qualcomm's number.
    pub fn by_id(id: u32) -> Option<&'static Self> {
        SOCS.iter().find(|soc| soc.id == Some(id))
    }

    /// By the number that a Linux kernel shows.
    pub fn by_kernel_id(id: u32) -> Option<&'static Self> {
        SOCS.iter().find(|soc| soc.kernel_ids.contains(&id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_and_number_leads_to_one_chip() {
        for soc in SOCS {
            assert_eq!(Soc::by_name(soc.name), Some(soc));
            assert_eq!(Soc::by_name(&soc.name.to_lowercase()), Some(soc));
            assert!(soc.aliases.iter().all(|alias| Soc::by_name(alias) == Some(soc)), "{}", soc.name);
            assert!(soc.id.is_none_or(|id| Soc::by_id(id) == Some(soc)), "{}", soc.name);
            assert!(soc.kernel_ids.iter().all(|&id| Soc::by_kernel_id(id) == Some(soc)), "{}", soc.name);
            assert_eq!(soc.id.is_some(), soc.dsp_arch >= FIRST_HTP_ARCH, "{}", soc.name);
        }
    }

    #[test]
    fn the_measured_numbers() {
        for (id, name, arch) in [
            (30, "SM8350", 68),
            (43, "SM8550", 73),
            (57, "SM8650", 75),
            (60, "SC8380XP", 73),
            (69, "SM8750", 79),
            (87, "SM8850", 81),
        ] {
            let soc = Soc::by_id(id).unwrap();
            assert_eq!((soc.name, soc.dsp_arch), (name, arch));
        }
        assert_eq!(Soc::by_name("X-Elite").unwrap().id, Some(60));
        assert_eq!((Soc::by_name("sm9999"), Soc::by_id(0)), (None, None));
    }
}
