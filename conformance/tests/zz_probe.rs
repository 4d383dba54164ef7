//! scratch
use compiler::HtpOptions;
use compiler::testmodel::TestModel;
use conformance::compiled::*;
use conformance::{backends, bundles, greedy};
use genie_types::*;
use half::f16;
use qnn_api::*;
use std::time::Instant;
#[test]
#[ignore]
fn seeds() {
    let backend = backends::linked();
    let from: u64 = std::env::var("FROM").unwrap().parse().unwrap();
    let to: u64 = std::env::var("TO").unwrap().parse().unwrap();
    for case in CASES {
        if matches!(case.name, "llama_split3_f16") {
            continue;
        }
        let mut found = vec![];
        for seed in from..to {
            let model = TestModel { seed, ..case.model() };
            let b = bundles::Bundle::make(&model, &backend, |o| {
                o.ars = vec![1, 32];
                o.cls = vec![256];
                o.weights = case.weights;
            });
            let mut e = b.engine(&backend);
            let t = greedy::generate(&mut e, &case.input(), N_TOKENS);
            if t.tokens.iter().any(|t| t.0 == 257 || t.0 == 256) {
                continue;
            }
            let m = t.logits.iter().map(|l| greedy::best(l).1).fold(9f32, f32::min);
            let d: std::collections::HashSet<_> = t.tokens.iter().collect();
            found.push((m, seed, d.len()));
        }
        found.sort_by(|a, b| b.0.total_cmp(&a.0));
        found.retain(|f| f.2 >= 8);
        println!("{} {:?}", case.name, &found[..found.len().min(8)]);
    }
}
fn noise(n: usize, s: u32) -> Vec<f32> {
    let mut x = s.wrapping_mul(747796405) | 1;
    (0..n)
        .map(|_| {
            x = x.wrapping_mul(1664525).wrapping_add(1013904223);
            ((x >> 8) as f32 / (1 << 24) as f32 - 0.5) * 0.5
        })
        .collect()
}
fn h(v: &[f32]) -> Vec<u8> {
    v.iter().flat_map(|x| f16::from_f32(*x).to_le_bytes()).collect()
}
#[test]
#[ignore]
fn forms() {
    let htp = HtpOptions::for_target("sm8650").unwrap();
    let b = backends::htp(&htp.backend_options());
    for n in [1usize, 32] {
        for k in [64usize, 512] {
            for q in [false, true] {
                for form in ["FullyConnected", "Conv2d", "MatMul"] {
                    let c = Context::create(&b, &Default::default()).unwrap();
                    let mut g = c
                        .compose(
                            "g",
                            &GraphOptions {
                                htp: Some(HtpGraphOptions {
                                    float16: true,
                                    vtcm_mb: Some(8),
                                    optimization: Some(3),
                                    ..Default::default()
                                }),
                                ..Default::default()
                            },
                        )
                        .unwrap();
                    let t = |n: &str, d: &[usize]| TensorInfo::new(n, d, Dtype::F16);
                    let act: Vec<usize> = match form {
                        "FullyConnected" => vec![n, k],
                        "Conv2d" => vec![1, 1, n, k],
                        _ => vec![1, 1, n, k],
                    };
                    let mut x = g.tensor(&t("x", &act), TensorKind::Input).unwrap();
                    let layers = 8;
                    for l in 0..layers {
                        let wd: Vec<usize> = match form {
                            "FullyConnected" => vec![k, k],
                            "Conv2d" => vec![1, 1, k, k],
                            _ => vec![k, k],
                        };
                        let axis = match form {
                            "FullyConnected" => 0,
                            "Conv2d" => 3,
                            _ => 1,
                        };
                        let w = if q {
                            let info = TensorInfo::new(format!("w{l}"), wd, Dtype::SFixed8)
                                .with_quant(Quant::PerAxis { axis, bits: None, scale_offsets: vec![(0.002, 0); k] });
                            let codes: Vec<u8> =
                                noise(k * k, l as u32).iter().map(|v| ((v * 400.0) as i8).cast_unsigned()).collect();
                            g.constant(&info, &codes).unwrap()
                        } else {
                            g.constant(&t(&format!("w{l}"), &wd), &h(&noise(k * k, l as u32))).unwrap()
                        };
                        let y = g
                            .tensor(
                                &t(&format!("y{l}"), &act),
                                if l + 1 == layers { TensorKind::Output } else { TensorKind::Native },
                            )
                            .unwrap();
                        let p: Vec<(&str, Param)> = match form {
                            "FullyConnected" => vec![],
                            "Conv2d" => vec![
                                ("stride", Param::U32Tensor { dims: vec![2], data: vec![1, 1] }),
                                ("pad_amount", Param::U32Tensor { dims: vec![2, 2], data: vec![0; 4] }),
                            ],
                            _ => vec![("transpose_in0", Param::Bool(false)), ("transpose_in1", Param::Bool(false))],
                        };
                        g.node(&format!("n{l}"), form, &p, &[x, w], &[y]).unwrap();
                        x = y;
                    }
                    let t0 = Instant::now();
                    let mut graph = match g.finalize() {
                        Ok(g) => g,
                        Err(e) => {
                            println!("{form} q{q} n{n} k{k}: {e}");
                            continue;
                        }
                    };
                    let fin = t0.elapsed();
                    let xb = h(&noise(n * k, 9));
                    let mut y = vec![0u8; n * k * 2];
                    let mut best = 9e9f64;
                    for _ in 0..6 {
                        let t0 = Instant::now();
                        let mut s = graph.session();
                        s.input(0, &xb).unwrap();
                        s.output(0, &mut y).unwrap();
                        s.run().unwrap();
                        best = best.min(t0.elapsed().as_secs_f64() * 1e3);
                    }
                    println!(
                        "{form:15} q {q:5} n{n:2} k{k}: finalize {:.0} ms, run {best:.2} ms for {layers} layers",
                        fin.as_secs_f64() * 1e3
                    );
                }
            }
        }
    }
}
