//! A bundle of a quantised GGUF file, or of one in bfloat16, is about as large as the file, without being asked to keep its format.

use std::error::Error;

use compiler::testmodel::{Matrices, TestModel};
use compiler::{CompileOptions, Family, Silent, Weights};
use open_genie::Options;
use qnn_api::{Backend, BackendOptions, Library};

#[test]
fn weights_take_no_more_than_in_the_file() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let backend = Backend::new(&Library::linked(qnn_host::providers())?, &BackendOptions::default())?;
    let formats = [(Matrices::Q4_0, Weights::Q4_0), (Matrices::Q8_0, Weights::Q8_0), (Matrices::Bf16, Weights::Bf16)];
    for (matrices, weights) in formats {
        for tied in [true, false] {
            // The embedding is a fifth of the weights: one that is widened, or held twice, shows.
            let (hidden, heads) = (512, 8);
            let model = TestModel {
                layers: 3,
                hidden,
                heads,
                kv_heads: 2,
                head_dim: 64,
                ffn: 1536,
                vocab: 4096,
                tied,
                ..TestModel::tiny(Family::Llama)
            };
            let file = folder.path().join(format!("{weights}-{tied}.gguf"));
            std::fs::write(&file, model.gguf(matrices)?.bytes())?;
            let bundle = folder.path().join(format!("{weights}-{tied}"));
            let mut options = CompileOptions::new(&file, &bundle);
            (options.ars, options.cls) = (vec![1, 8], vec![64]);
            let manifest = open_genie::compile(&options, &backend, &Options::new().threads(1), &mut Silent)?.manifest;
            assert_eq!(manifest.options.weights, weights, "as the file has them");
            let of_bundle: u64 = manifest.files.iter().filter(|f| f.path.ends_with(".bin")).map(|f| f.bytes).sum();
            let of_file = std::fs::metadata(&file)?.len();
            let ratio = of_bundle as f64 / of_file as f64;
            eprintln!("{weights}, tied {tied}: {of_bundle} of {of_file} bytes, {ratio:.3}");
            assert!(ratio < 1.08, "{weights}, tied {tied}: {of_bundle} bytes of a file of {of_file}");
        }
    }
    Ok(())
}
