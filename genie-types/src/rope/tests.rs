//! The rules against rows that libGenie 1.21 fed, and against published formulas.

use super::*;

/// Cosines and sines of position 37, as uint16 codes of scale 4/65535 and offset -32768.
struct Row {
    name: &'static str,
    scaling: Option<RopeScaling>,
    context_size: usize,
    cos: [u16; 16],
    sin: [u16; 16],
}

fn llama3(factor: f64, original_max_position: f64) -> Llama3Scaling {
    Llama3Scaling { factor, low_freq_factor: 1.0, high_freq_factor: 4.0, original_max_position }
}

fn longrope(original_max_position: f64) -> LongRopeScaling {
    LongRopeScaling {
        factor: 4.0,
        original_max_position,
        short_factor: (0..16).map(|j| 1.0 + 0.1 * f64::from(j)).collect(),
        long_factor: (0..16).map(|j| 2.0 + 0.5 * f64::from(j)).collect(),
    }
}

fn yarn(dim: usize, original_max_position: f64) -> YarnScaling {
    YarnScaling {
        factor: 4.0,
        original_max_position,
        dim,
        extrapolation_factor: 1.0,
        attn_factor: 1.0,
        beta_fast: 32.0,
        beta_slow: 1.0,
    }
}

#[test]
#[rustfmt::skip]
fn rows_are_those_that_libgenie_fed() {
    let rows = [
        Row {
            name: "default",
            scaling: None,
            context_size: 128,
            cos: [45308, 26595, 43383, 48437, 18872, 24771, 39159, 45731, 48043, 48798, 49039, 49116, 49140, 49148, 49150, 49151],
            sin: [22224, 47944, 20288, 37554, 24087, 47067, 47853, 42786, 38692, 36152, 34680, 33845, 33374, 33108, 32959, 32875],
        },
        Row {
            name: "linear4",
            scaling: Some(RopeScaling::Linear { factor: 4.0 }),
            context_size: 128,
            cos: [16633, 40468, 16766, 31554, 42628, 46984, 48455, 48930, 49081, 49129, 49144, 49149, 49151, 49151, 49151, 49151],
            sin: [35616, 18306, 36287, 49106, 45852, 40911, 37492, 35450, 34281, 33619, 33247, 33037, 32919, 32853, 32815, 32794],
        },
        Row {
            name: "llama3",
            scaling: Some(llama3(8.0, 64.0).into()),
            context_size: 128,
            cos: [45308, 26595, 17568, 20916, 47280, 48600, 48976, 49096, 49134, 49146, 49149, 49151, 49151, 49151, 49151, 49151],
            sin: [22224, 47944, 38883, 44080, 40370, 36981, 35155, 34113, 33525, 33194, 33007, 32902, 32843, 32810, 32791, 32781],
        },
        Row {
            name: "longrope_long",
            scaling: Some(longrope(32.0).into()),
            context_size: 128,
            cos: [50981, 24011, 18697, 26870, 44434, 50117, 51625, 52014, 52116, 52143, 52150, 52152, 52153, 52153, 52153, 52153],
            sin: [26128, 50063, 19433, 51234, 48249, 41415, 37263, 35081, 33962, 33388, 33092, 32938, 32857, 32815, 32793, 32781],
        },
        Row {
            name: "longrope_short",
            scaling: Some(longrope(256.0).into()),
            context_size: 128,
            cos: [46788, 51046, 15412, 39029, 16681, 36113, 46402, 49730, 50699, 50975, 51054, 51076, 51082, 51084, 51085, 51085],
            sin: [20979, 33968, 26908, 15553, 41529, 50777, 45000, 39681, 36506, 34769, 33839, 33341, 33076, 32933, 32857, 32816],
        },
        Row {
            name: "longrope_size64",
            scaling: Some(longrope(100.0).into()),
            context_size: 64,
            cos: [47071, 51415, 15061, 39156, 16356, 36181, 46677, 50073, 51062, 51343, 51423, 51446, 51453, 51454, 51455, 51455],
            sin: [20741, 33992, 26790, 15205, 41706, 51141, 45248, 39821, 36582, 34810, 33860, 33353, 33082, 32937, 32859, 32817],
        },
        Row {
            name: "yarn",
            scaling: Some(yarn(32, 32.0).into()),
            context_size: 128,
            cos: [47046, 14211, 49701, 31386, 43995, 48955, 50630, 51171, 51343, 51397, 51415, 51420, 51422, 51422, 51422, 51422],
            sin: [20762, 34685, 24940, 51371, 47666, 42039, 38147, 35822, 34491, 33737, 33313, 33074, 32940, 32865, 32822, 32798],
        },
        Row {
            name: "yarn_o2048",
            scaling: Some(yarn(32, 2048.0).into()),
            context_size: 128,
            cos: [47046, 25739, 44854, 50609, 16946, 27488, 44079, 49594, 51007, 51336, 51406, 51420, 51422, 51422, 51422, 51422],
            sin: [20762, 50048, 18558, 38217, 22883, 50660, 47602, 40823, 36682, 34567, 33547, 33074, 32940, 32865, 32822, 32798],
        },
        Row {
            name: "yarn_dim16",
            scaling: Some(yarn(16, 2048.0).into()),
            context_size: 128,
            cos: [47046, 44854, 16946, 43609, 50926, 51398, 51422, 51422, 50160, 51020, 51295, 51382, 51410, 51418, 51421, 51422],
            sin: [20762, 18558, 22883, 47949, 37043, 33722, 32940, 32822, 39513, 36621, 34945, 33994, 33458, 33156, 32986, 32890],
        },
        Row {
            name: "prop",
            scaling: Some(RopeScaling::Proportional { factor: 2.0, partial_rotary_factor: 0.5 }),
            context_size: 128,
            cos: [48160, 23621, 47639, 16563, 28252, 41057, 46427, 48273, 49151, 49151, 49151, 49151, 49151, 49151, 49151, 49151],
            sin: [27156, 19174, 25893, 30348, 48517, 46900, 41815, 38061, 32768, 32768, 32768, 32768, 32768, 32768, 32768, 32768],
        },
        Row {
            name: "hunyuan",
            scaling: Some(RopeScaling::Hunyuan),
            context_size: 128,
            cos: [45308, 43546, 35288, 29604, 45907, 48712, 49093, 49144, 49150, 49151, 49151, 49151, 49151, 49151, 49151, 49151],
            sin: [22224, 45106, 16579, 48843, 42554, 36537, 34145, 33268, 32949, 32833, 32791, 32776, 32771, 32769, 32768, 32768],
        },
        Row {
            name: "qwen2vl",
            scaling: Some(RopeScaling::Mrope { interleaved: false, sections: vec![4, 6, 6] }),
            context_size: 128,
            cos: [45308, 26595, 43383, 48437, 18872, 24771, 39159, 45731, 48043, 48798, 49039, 49116, 49140, 49148, 49150, 49151],
            sin: [22224, 47944, 20288, 37554, 24087, 47067, 47853, 42786, 38692, 36152, 34680, 33845, 33374, 33108, 32959, 32875],
        },
    ];
    for Row { name, scaling, context_size, cos, sin } in rows {
        let rope = RopeConfig::new(16, 1e4).with_scaling(scaling);
        assert_eq!(rope.problems(), [], "{name}");
        let RopeAngles { frequencies, amplitude } = rope.angles(context_size);
        let code = |x: f64| (x * amplitude / f64::from(4.0f32 / 65535.0) + 32768.0) as u16;
        let found: Vec<u16> = frequencies.iter().map(|f| code((37.0 * f).cos())).collect();
        assert_eq!(found, cos, "cosines of {name}");
        let found: Vec<u16> = frequencies.iter().map(|f| code((37.0 * f).sin())).collect();
        assert_eq!(found, sin, "sines of {name}");
    }
}

#[test]
fn llama3_scaling_stretches_long_waves_only() {
    // Llama 3.2 1B: head_dim 64, theta 5e5, factor 32, low 1, high 4, trained on 8192.
    let plain = RopeConfig::new(32, 5e5).angles(0).frequencies;
    let scaled = RopeConfig::new(32, 5e5).with_scaling(RopeScaling::Llama3(llama3(32.0, 8192.0))).angles(0).frequencies;
    // Waves of angle 0 to 14 are under 2048 tokens, those of 18 to 31 over 8192.
    for j in 0..32 {
        let ratio = plain[j] / scaled[j];
        match j {
            0..=14 => assert_eq!(ratio, 1.0, "angle {j}"),
            15..=17 => assert!(ratio > 1.0 && ratio < 32.0, "angle {j}: {ratio}"),
            _ => assert!((ratio - 32.0).abs() < 1e-9, "angle {j}: {ratio}"),
        }
    }
    // The blend of angle 16, by the published formula: theta^-0.5, wave 4442.88, 8192 / wave = 1.84385.
    let smooth = (8192.0 / (std::f64::consts::TAU * 5e5f64.sqrt()) - 1.0) / 3.0;
    let want = (1.0 - smooth) * plain[16] / 32.0 + smooth * plain[16];
    assert!((scaled[16] - want).abs() < 1e-15);
}

#[test]
fn only_longrope_asks_for_the_context() {
    let at_the_edge = |size| RopeConfig::new(16, 1e4).with_scaling(RopeScaling::LongRope(longrope(100.0))).angles(size);
    assert_eq!(at_the_edge(100), at_the_edge(1), "as long as in training: the short list");
    assert_ne!(at_the_edge(101).frequencies, at_the_edge(100).frequencies);
    assert_eq!(at_the_edge(101).amplitude, at_the_edge(100).amplitude);
    let once = LongRopeScaling { factor: 1.0, ..longrope(100.0) };
    assert_eq!(once.amplitude(), 1.0);
}

#[test]
fn numbers_that_cannot_be_are_named() {
    let of = |scaling: RopeScaling| RopeConfig::new(16, 1e4).with_scaling(scaling).problems();
    let short = LongRopeScaling { short_factor: vec![1.0; 15], ..longrope(64.0) };
    let negative = LongRopeScaling { long_factor: vec![-1.0; 16], ..longrope(64.0) };
    let sections = |interleaved, sections: &[usize]| RopeScaling::Mrope { interleaved, sections: sections.into() };
    let cases = [
        (RopeConfig::new(0, 1e4).problems(), "rope-dim: expected at least 1, found 0"),
        (RopeConfig::new(16, f64::NAN).problems(), "rope-theta: expected a finite number above 0, found NaN"),
        (of(RopeScaling::Linear { factor: 0.0 }), "factor: expected a finite number above 0, found 0"),
        (of(llama3(-1.0, 64.0).into()), "factor: expected a finite number above 0, found -1"),
        (of(short.into()), "short-factor: expected 16 numbers, one for each angle of `rope-dim`, found 15"),
        (of(negative.into()), "long-factor: expected finite numbers above 0, found -1"),
        (of(longrope(1.0).into()), "original-max-position-embeddings: expected more than 1, found 1"),
        (of(yarn(31, 64.0).into()), "dim: expected an even number above 0, twice `rope-dim`, found 31"),
        (
            of(YarnScaling { beta_fast: 0.5, ..yarn(32, 64.0) }.into()),
            "beta-fast: expected at least `beta-slow`, 1, found 0.5",
        ),
        (
            of(RopeScaling::Proportional { factor: 1.0, partial_rotary_factor: 1.5 }),
            "partial-rotary-factor: expected a number from 0 to 1, found 1.5",
        ),
        (
            of(sections(false, &[4, 2, 2])),
            "mrope-section: expected 3 numbers that add up to `rope-dim`, 16, found [4, 2, 2]",
        ),
    ];
    for (found, want) in cases {
        let found: Vec<_> =
            found.iter().map(|p| format!("{}: expected {}, found {}", p.key, p.expected, p.found)).collect();
        assert_eq!(found, [want]);
    }
    assert_eq!(of(sections(true, &[4, 2, 2])), [], "half of the angles");
}
