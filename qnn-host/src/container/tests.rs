//! Round trips, shared weights, and malformed files.

use proptest::prelude::*;

use super::*;
use crate::ir::{Dtype, Node, Param, Quant, Role, Tensor, TensorId};

fn tensor(name: &str, dims: &[u32], role: Role) -> Tensor {
    Tensor { name: name.into(), dims: dims.into(), dtype: Dtype::F32, quant: Quant::None, data_format: 0, role }
}

/// y = FullyConnected(x [rows, 4], w [3, 4]); z = Transpose(y), with an encoding on z for good measure.
fn graph(name: &str, rows: u32, weights: &Bytes) -> SourceGraph {
    let mut z = tensor("z", &[3, rows], Role::Output);
    z.quant = Quant::PerAxis { axis: 0, bits: 0, scales: [0.5, 1.0, 2.0].into(), offsets: [0, -1, 3].into() };
    SourceGraph {
        name: name.into(),
        tensors: vec![
            tensor("x", &[rows, 4], Role::Input),
            tensor("w", &[3, 4], Role::Static(weights.clone())),
            tensor("y", &[rows, 3], Role::Native),
            z,
        ],
        nodes: vec![
            Node {
                name: "fc".into(),
                op: "FullyConnected".into(),
                params: vec![("keep_dims".into(), Param::Bool(false))],
                inputs: vec![TensorId(0), TensorId(1)],
                outputs: vec![TensorId(2)],
            },
            Node {
                name: "tr".into(),
                op: "Transpose".into(),
                params: vec![("perm".into(), Param::Ints(vec![2], vec![1, 0]))],
                inputs: vec![TensorId(2)],
                outputs: vec![TensorId(3)],
            },
        ],
    }
}

fn weights() -> Vec<u8> {
    (0..12u32).flat_map(|i| (i as f32).to_le_bytes()).collect()
}

fn image() -> Image {
    let bytes = weights();
    // Equal bytes at two places: they must become one blob.
    let graphs = vec![graph("ar1", 1, &Bytes::copy_from(&bytes)), graph("ar8", 8, &Bytes::copy_from(&bytes))];
    let packed = vec![Packed { of: (1, TensorId(1)), tag: 7, data: Bytes::copy_from(&[9; 100]) }];
    Image { graphs, packed }
}

pub(super) fn sample_file() -> Vec<u8> {
    file()
}

fn file() -> Vec<u8> {
    encode(&image()).unwrap()
}

/// Rewrites both checksums, so that only the checks behind them stand.
fn reseal(file: &mut [u8]) {
    let meta_len = u64::from_le_bytes(file[32..40].try_into().unwrap()) as usize;
    let meta = xxhash_rust::xxh3::xxh3_64(&file[HEADER_BYTES..HEADER_BYTES + meta_len]);
    file[40..48].copy_from_slice(&meta.to_le_bytes());
    let head = xxhash_rust::xxh3::xxh3_64(&file[..120]);
    file[120..128].copy_from_slice(&head.to_le_bytes());
}

fn read(file: &[u8]) -> Result<Image, FormatError> {
    decode(&Bytes::copy_from(file), Verify::All)
}

#[test]
fn what_was_written_is_read() {
    let (wrote, read) = (image(), read(&file()).unwrap());
    for (a, b) in wrote.graphs.iter().zip(&read.graphs) {
        assert_eq!(format!("{a:?}"), format!("{b:?}"));
        let data = |g: &SourceGraph| match &g.tensors[1].role {
            Role::Static(d) => d.to_vec(),
            other => panic!("{other:?}"),
        };
        assert_eq!(data(a), data(b));
    }
    assert_eq!(read.graphs.len(), 2);
    assert_eq!(read.packed.len(), 1);
    assert_eq!((read.packed[0].tag, read.packed[0].data[..].to_vec()), (7, vec![9; 100]));
}

#[test]
fn equal_weights_are_stored_once_and_aligned() {
    let file = Bytes::copy_from(&file());
    let read = decode(&file, Verify::All).unwrap();
    let at = |g: usize| match &read.graphs[g].tensors[1].role {
        Role::Static(d) => d.as_ptr().addr() - file.as_ptr().addr(),
        other => panic!("{other:?}"),
    };
    assert_eq!(at(0), at(1));
    assert_eq!(at(0) % PAGE, 0, "the first blob begins the section");
    let s = summary(&file).unwrap();
    assert_eq!((s.blobs, s.weights_bytes, s.total_bytes), (2, 64 + 100, file.len() as u64));
    assert_eq!(s.build_id, crate::BUILD_ID);
}

#[test]
fn writing_into_a_buffer_that_is_too_small_is_refused() {
    let plan = plan(&image()).unwrap();
    let mut small = vec![0; plan.total_bytes() - 1];
    assert_eq!(plan.write(&mut small), None);
    let mut large = vec![0xff; plan.total_bytes() + 5];
    assert_eq!(plan.write(&mut large), Some(plan.total_bytes()));
    assert_eq!(large[..plan.total_bytes()], file()[..], "every byte is written");
}

/// Large weights are reported part by part, and either pass ends at any of them.
#[test]
fn laying_out_and_writing_are_watched_and_end_when_asked() {
    let parts = 3;
    let mut image = image();
    let large = Bytes::copy_from(&vec![7; parts * super::encode::PART_BYTES]);
    image.graphs[0].tensors[1].role = Role::Static(large);
    image.packed.clear();
    let mut reported = Vec::new();
    let whole = super::plan_watched(&image, &mut |done, total| {
        reported.push((done, total));
        true
    })
    .unwrap();
    let (done, total) = *reported.last().unwrap();
    assert_eq!(done, total);
    assert!(total > (parts * super::encode::PART_BYTES) as u64 && reported.len() > parts, "{reported:?}");
    assert!(reported.is_sorted());
    for end in 0..reported.len() {
        let mut asked = 0;
        let stopped = super::plan_watched(&image, &mut |_, _| {
            asked += 1;
            asked <= end
        });
        assert!(matches!(stopped, Err(FormatError::Stopped)), "part {end}");
        assert_eq!(asked, end + 1, "it is asked no more");
    }

    let mut bytes = vec![0; whole.total_bytes()];
    let mut ends = Vec::new();
    let written = whole.write_in_parts(&mut bytes, |_, end| {
        ends.push(end);
        true
    });
    assert_eq!((written, ends.last()), (Some(bytes.len()), Some(&bytes.len())));
    assert!(ends.len() > parts && ends.is_sorted(), "{ends:?}");
    for end in 0..ends.len() {
        let mut asked = 0;
        let written = whole.write_in_parts(&mut bytes, |_, _| {
            asked += 1;
            asked <= end
        });
        assert_eq!((written, asked), (None, end + 1));
    }
}

#[test]
fn each_lie_has_its_own_answer() {
    struct Case {
        what: &'static str,
        change: fn(&mut Vec<u8>),
        message: &'static str,
    }
    let cases = [
        Case { what: "empty", change: |f| f.clear(), message: "torn: expected at least 128 bytes, found 0" },
        Case { what: "short", change: |f| f.truncate(100), message: "torn: expected at least 128 bytes, found 100" },
        Case { what: "cut", change: |f| f.truncate(4200), message: "is torn: expected at least" },
        Case { what: "longer", change: |f| f.push(0), message: "malformed at byte 24: expected a file of" },
        Case { what: "an ELF", change: |f| f[..4].copy_from_slice(b"\x7fELF"), message: "expected magic" },
        Case { what: "newer", change: |f| f[8] = 5, message: "format version 5, this backend reads up to 4" },
        Case { what: "bit in header", change: |f| f[70] ^= 4, message: "checksum of the header" },
        Case { what: "bit in metadata", change: |f| f[200] ^= 4, message: "checksum of the metadata" },
        Case { what: "bit in weights", change: |f| *f.last_mut().unwrap() ^= 4, message: "checksum of weights blob 1" },
        Case {
            what: "weights outside",
            change: |f| {
                f[56..64].copy_from_slice(&u64::MAX.to_le_bytes());
                reseal(f);
            },
            message: "weights outside of the file",
        },
        Case {
            what: "weights off a page",
            change: |f| {
                f[48] = 64;
                reseal(f);
            },
            message: "malformed",
        },
        Case {
            what: "more graphs",
            change: |f| {
                f[68] = 3;
                reseal(f);
            },
            message: "expected 3 graphs as the header says, found 2",
        },
        Case {
            what: "a long build id",
            change: |f| {
                f[128..132].copy_from_slice(&u32::MAX.to_le_bytes());
                reseal(f);
            },
            message: "a list of 4294967295 does not fit",
        },
    ];
    for case in cases {
        let mut file = file();
        (case.change)(&mut file);
        let error = read(&file).expect_err(case.what).to_string();
        assert!(error.contains(case.message), "{}: {error}", case.what);
    }
}

#[test]
fn a_graph_that_breaks_a_rule_is_refused_by_name() {
    let mut image = image();
    image.graphs[1].tensors[2].dims = vec![8, 5];
    let error = read(&encode(&image).unwrap()).unwrap_err();
    assert_eq!(error.to_string(), "graph `ar8` of the context binary breaks a rule");
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(cause, "node `fc` (FullyConnected), output 0 `y`: expected dims [8, 3], found [8, 5]");
}

proptest! {
    #[test]
    fn a_cut_file_is_refused(cut in 0usize..1 << 16) {
        let file = file();
        let cut = cut % file.len();
        prop_assert!(read(&file[..cut]).is_err());
    }

    #[test]
    fn a_flipped_bit_is_noticed_or_padding(at in 0usize..1 << 16, bit in 0u8..8) {
        let good = file();
        let mut file = good.clone();
        let at = at % file.len();
        file[at] ^= 1 << bit;
        match read(&file) {
            Err(_) => {}
            // The zeros between sections and blobs are the only bytes that are never read.
            Ok(_) => prop_assert_eq!(good[at], 0, "byte {} is not padding", at),
        }
    }

    #[test]
    fn resealed_damage_never_panics(
        changes in prop::collection::vec((0usize..1 << 12, any::<u8>()), 1..6)
    ) {
        let mut file = file();
        let meta = HEADER_BYTES + u64::from_le_bytes(file[32..40].try_into().unwrap()) as usize;
        for (at, value) in changes {
            let at = 72 + at % (meta - 72);
            file[at] = value;
        }
        reseal(&mut file);
        if let Ok(image) = read(&file) {
            for graph in &image.graphs {
                prop_assert!(crate::validate::check_graph(graph).is_ok());
            }
        }
    }

    #[test]
    fn noise_is_refused(noise in prop::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(read(&noise).is_err());
    }
}
