//! Block formats against numbers that `reference.py` printed.

use super::super::BlockFormat;
use half::f16;

#[test]
fn blocks_decode_as_the_reference_does() {
    struct Case {
        format: BlockFormat,
        halves: &'static [usize],
        sampled: [f32; 8],
        sum: f64,
    }
    // Printed by `reference.py`.
    let cases = [
        Case {
            format: BlockFormat::Q4_0,
            halves: &[0],
            sampled: [-0.125, 0.125, 0.375, -0.375, 0.0625, 0.1875, 0.3125, -0.5],
            sum: -2.0625,
        },
        Case {
            format: BlockFormat::Q4_1,
            halves: &[0, 2],
            sampled: [0.625, 0.875, 0.125, 0.375, 0.25, 0.375, 0.5625, 0.6875],
            sum: 18.0625,
        },
        Case {
            format: BlockFormat::Q5_0,
            halves: &[0],
            sampled: [0.625, 0.875, -0.875, -0.625, 0.6875, -0.1875, -1.0, 0.125],
            sum: -2.8125,
        },
        Case {
            format: BlockFormat::Q5_1,
            halves: &[0, 2],
            sampled: [1.875, 0.125, 0.375, 1.625, 1.375, 1.5625, 1.6875, 0.8125],
            sum: 35.3125,
        },
        Case {
            format: BlockFormat::Q8_0,
            halves: &[0],
            sampled: [-6.625, -4.375, -2.125, 0.125, 2.375, 4.625, 6.875, -6.875],
            sum: -3.0,
        },
        Case {
            format: BlockFormat::Q4K,
            halves: &[0, 2],
            sampled: [-2.875, 5.125, 7.375, 26.0, 2.125, 31.75, 13.5, -2.875],
            sum: 2683.5,
        },
        Case {
            format: BlockFormat::Q5K,
            halves: &[0, 2],
            sampled: [-2.875, 7.875, 38.375, 31.0, 23.125, 37.5, 13.5, -2.875],
            sum: 6228.5,
        },
        Case {
            format: BlockFormat::Q6K,
            halves: &[208],
            sampled: [40.25, -92.25, -26.0, -12.125, -85.75, 45.75, 21.25, -9.375],
            sum: -927.75,
        },
        Case {
            format: BlockFormat::MXFP4,
            halves: &[],
            sampled: [-0.75, 0.125, 0.75, -0.125, 0.5, 1.5, -0.125, -0.375],
            sum: 3.125,
        },
        // Printed by llama.cpp's `libggml-base` (0.25.3).
        Case {
            format: BlockFormat::Q2K,
            halves: &[80, 82],
            sampled: [-0.25, -0.6875, 0.3125, 0.25, -0.875, 0.1875, -0.1875, 0.625],
            sum: -23.8125,
        },
        Case {
            format: BlockFormat::Q3K,
            halves: &[108],
            sampled: [1.75, -5.0625, -2.375, 4.25, 2.0, -0.1875, -6.5, 2.4375],
            sum: 14.625,
        },
        Case {
            format: BlockFormat::IQ4_NL,
            halves: &[0],
            sampled: [-1.375, 1.5625, 5.5625, -5.1875, 0.8125, 2.375, 4.3125, -7.9375],
            sum: -30.0625,
        },
        Case {
            format: BlockFormat::IQ4_XS,
            halves: &[0],
            sampled: [96.0625, 13.25, 72.875, 29.8125, -56.3125, -9.9375, -79.5, -99.375],
            sum: -403.125,
        },
    ];
    for Case { format, halves, sampled, sum } in cases {
        let mut block: Vec<u8> = (0..format.bytes()).map(|i| (i * 73 + 41) as u8).collect();
        for (n, &at) in halves.iter().enumerate() {
            block[at..at + 2].copy_from_slice(&f16::from_f32(0.0625 * (n + 1) as f32).to_le_bytes());
        }
        if format == BlockFormat::MXFP4 {
            // An exponent in the place of a scale.
            block[0] = 125;
        }
        let mut numbers = vec![f32::NAN; format.elems()];
        format.decode(&block, &mut numbers);
        let step = numbers.len() / 8;
        let found: Vec<f32> = numbers.iter().copied().skip(3).step_by(step).collect();
        assert_eq!(found, sampled, "{format:?}");
        assert_eq!(numbers.iter().map(|&x| f64::from(x)).sum::<f64>(), sum, "{format:?}");
    }
}

/// Every number of MXFP4 against the definition: a sign, two bits of exponent with bias 1 and one of fraction (E2M1), times 2^(e - 127).
#[test]
fn floats_of_four_bits_are_the_standards() {
    let number = |code: u8| {
        let (exponent, fraction) = (i32::from(code >> 1 & 3), f64::from(code & 1) / 2.0);
        let magnitude = if exponent == 0 { fraction } else { 2f64.powi(exponent - 1) * (1.0 + fraction) };
        if code & 8 == 0 { magnitude } else { -magnitude }
    };
    assert_eq!([0u8, 1, 2, 3, 4, 5, 6, 7, 13].map(number), [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -3.0]);
    for e in 0..=255u8 {
        // Elements 0 to 15 are all codes from 0 on, 16 to 31 the same backwards.
        let block: Vec<u8> = std::iter::once(e).chain((0..16).map(|i| i | (15 - i) << 4)).collect();
        let mut numbers = [0.0f32; 32];
        BlockFormat::MXFP4.decode(&block, &mut numbers);
        for (i, found) in numbers.into_iter().enumerate() {
            let code = if i < 16 { i as u8 } else { 31 - i as u8 };
            if e == 255 {
                assert!(found.is_nan(), "{i}");
                continue;
            }
            let expected = (number(code) * 2f64.powi(i32::from(e) - 127)) as f32;
            assert_eq!(found, expected, "element {i} of 2^({e} - 127)");
            assert!(expected != 0.0 || found.to_bits() == 0, "ggml has no -0");
        }
    }
}
