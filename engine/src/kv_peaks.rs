//! How large cache rows are: what the scales of 8-bit caches are made of.

use genie_types::{KvDtype, KvKind};
use half::f16;
use kvmanager::KvImage;

/// The largest magnitudes of the keys and the values of each layer in a saved cache of floats; tensors of other types count as zeros.
pub fn kv_peaks(image: &KvImage) -> Vec<[f32; 2]> {
    let n_layers = image.tensors.iter().map(|tensor| tensor.layer.0 + 1).max().unwrap_or(0);
    let mut peaks = vec![[0f32; 2]; n_layers];
    for (tensor, rows) in image.tensors.iter().zip(&image.data) {
        let peak = match tensor.dtype {
            KvDtype::F32 => largest(rows.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes))),
            KvDtype::F16 => largest(rows.as_chunks().0.iter().map(|&bytes| f16::from_le_bytes(bytes).to_f32())),
            KvDtype::U8 | KvDtype::U16 => 0.0,
        };
        let of_layer = &mut peaks[tensor.layer.0];
        match tensor.kind {
            KvKind::Key => of_layer[0] = of_layer[0].max(peak),
            KvKind::Value => of_layer[1] = of_layer[1].max(peak),
            KvKind::KeyScale | KvKind::ValueScale => {}
        }
    }
    peaks
}

fn largest(numbers: impl Iterator<Item = f32>) -> f32 {
    numbers.fold(0.0, |most, number| most.max(number.abs()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use genie_types::KvTensor;

    #[test]
    fn the_largest_of_each_kind_and_layer_is_found() {
        let mut image = KvImage::default();
        let mut add = |kind, layer, dtype, rows: Vec<u8>| {
            image.tensors.push(KvTensor::new(kind, layer, 1, 2, dtype));
            image.data.push(rows);
        };
        let floats = |numbers: [f32; 2]| numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
        let halves = |numbers: [f32; 2]| numbers.iter().flat_map(|&x| f16::from_f32(x).to_le_bytes()).collect();
        add(KvKind::Key, 1, KvDtype::F32, floats([1.5, -3.0]));
        add(KvKind::Value, 1, KvDtype::F16, halves([-0.5, 0.25]));
        // A head in a tensor of its own.
        add(KvKind::Key, 1, KvDtype::F32, floats([4.0, 0.0]));
        add(KvKind::Value, 0, KvDtype::U8, vec![255, 0]);
        assert_eq!(kv_peaks(&image), [[0.0, 0.0], [4.0, 0.5]]);
    }
}
