//! Plans as a whole: what must hold of any, and what was measured of one GPU.

use super::*;

fn model(name: &str) -> ModelShape {
    ModelShape::named(name).expect("a built-in shape")
}

fn job(name: &str, gpus: usize) -> Job {
    Job {
        model: model(name),
        gpu: Gpu::H200,
        gpus,
        gpus_per_node: 8,
        network: Network::IB_400,
        batch: gpus,
        sequence: 8192,
    }
}

fn strategy(mesh: Mesh) -> Strategy {
    Strategy { mesh, ..Strategy::default() }
}

/// Meshes of 16 GPUs that use every axis.
fn meshes() -> Vec<Mesh> {
    let one = Mesh::default();
    vec![
        Mesh { dp: 16, ..one },
        Mesh { fsdp: 16, ..one },
        Mesh { dp: 2, fsdp: 8, ..one },
        Mesh { fsdp: 4, tp: 4, ..one },
        Mesh { fsdp: 4, cp: 4, ..one },
        Mesh { dp: 2, tp: 2, pp: 4, ..one },
        Mesh { fsdp: 2, tp: 2, cp: 2, pp: 2, ..one },
    ]
}

#[test]
fn fsdp_on_8_ranks_holds_an_eighth() {
    let one = simulate(&job("Llama-3-8B", 1), &Strategy::default()).unwrap().memory;
    let mesh = Mesh { fsdp: 8, ..Mesh::default() };
    let eight = simulate(&job("Llama-3-8B", 8), &strategy(mesh)).unwrap().memory;
    assert_eq!(one.weights, 4.0 * model("Llama-3-8B").parameters());
    for (one, eight) in [
        (one.weights, eight.weights),
        (one.gradients, eight.gradients),
        (one.optimizer, eight.optimizer),
    ] {
        assert_eq!(one / 8.0, eight);
    }
    assert_eq!(one.activations, eight.activations);
}

#[test]
fn zero_1_holds_a_part_of_the_state_only() {
    let mesh = Mesh { dp: 8, ..Mesh::default() };
    let job = job("Llama-3-8B", 8);
    let ddp = simulate(&job, &strategy(mesh)).unwrap().memory;
    let zero = simulate(&job, &Strategy { zero_1: true, ..strategy(mesh) }).unwrap().memory;
    assert_eq!(ddp.optimizer / 8.0, zero.optimizer);
    assert_eq!([ddp.weights, ddp.gradients], [zero.weights, zero.gradients]);
}

#[test]
fn all_times_of_a_step_add_up() {
    let job = Job { batch: 64, ..job("Llama-3-8B", 16) };
    for mesh in meshes() {
        let time = simulate(&job, &strategy(mesh)).unwrap().time;
        let sum = time.compute + time.exposed.iter().sum::<f64>() + time.bubble;
        assert!((sum / time.seconds - 1.0).abs() < 1e-9, "{mesh}: {sum} of {}", time.seconds);
        for (exposed, all) in time.exposed.iter().zip(time.communication) {
            assert!(*exposed <= all + 1e-9, "{mesh}: {exposed} of {all}");
        }
    }
}

#[test]
fn more_overlap_is_never_slower() {
    let job = Job { batch: 64, network: Network::ETHERNET_100, ..job("Llama-3-8B", 16) };
    for mesh in meshes() {
        for (recompute, reshard) in [(false, true), (true, false)] {
            let seconds = |overlap| {
                let strategy = Strategy { recompute, reshard, overlap, ..strategy(mesh) };
                simulate(&job, &strategy).unwrap().time.seconds
            };
            let more = [Overlap::None, Overlap::Gradients, Overlap::Gathers, Overlap::Full];
            let all = more.map(seconds);
            assert!(all.windows(2).all(|pair| pair[0] >= pair[1]), "{mesh}: {all:?}");
        }
    }
}

#[test]
fn more_bandwidth_is_never_slower() {
    for mesh in meshes() {
        let mut before = f64::INFINITY;
        for gigabits in [10.0, 100.0, 400.0, 3200.0] {
            let network = Network { bandwidth: gigabits * 1e9 / 8.0, ..Network::IB_400 };
            let job = Job { batch: 64, network, ..job("Llama-3-8B", 16) };
            let seconds = simulate(&job, &strategy(mesh)).unwrap().time.seconds;
            assert!(seconds <= before, "{mesh} at {gigabits} Gb/s: {seconds}, {before} before");
            before = seconds;
        }
    }
}

/// Where parameters travel in bf16; see docs/scaling.md for those that travel in f32.
#[test]
fn at_the_speed_of_nvlink_communication_is_hidden() {
    for mesh in [Mesh { dp: 8, ..Mesh::default() }, Mesh { fsdp: 8, ..Mesh::default() }] {
        let share = |network, gpus_per_node| {
            let job = Job { network, gpus_per_node, ..job("Llama-3-8B", 8) };
            simulate(&job, &strategy(mesh)).unwrap().time.exposed_share()
        };
        let near = share(Network::NVLINK, 8);
        assert!(near <= 0.1, "{mesh}: {near:.3}");
        // A link of 100 Gb/s for each rank.
        let far = share(Network::ETHERNET_100, 1);
        assert!((0.7..0.95).contains(&far), "{mesh}: {far:.3}");
    }
}

#[test]
fn stages_reduce_gradients_at_the_end_and_share_a_tied_table() {
    let job = Job { batch: 16, sequence: 1024, ..job("Qwen2.5-0.5B", 4) };
    let time = |mesh| simulate(&job, &strategy(mesh)).unwrap().time;
    let staged = time(Mesh { dp: 2, pp: 2, ..Mesh::default() });
    let [exposed, all] = [staged.exposed, staged.communication].map(|of| of[Axis::Dp as usize]);
    assert_eq!(exposed, all);
    let plain = time(Mesh { dp: 4, ..Mesh::default() });
    assert!(plain.exposed[Axis::Dp as usize] < plain.communication[Axis::Dp as usize]);
    let memory = |mesh| simulate(&job, &strategy(mesh)).unwrap().memory.weights;
    let table = 4.0 * 151_936.0 * 896.0;
    assert!(memory(Mesh { dp: 2, pp: 2, ..Mesh::default() }) > table);
}

#[test]
fn context_parallel_ranks_reduce_gradients_too() {
    let job = job("Llama-3-8B", 16);
    let mesh = Mesh { fsdp: 8, cp: 2, ..Mesh::default() };
    let time = simulate(&job, &strategy(mesh)).unwrap().time;
    assert!(time.communication[Axis::Dp as usize] > 0.0);
}

#[test]
fn what_is_bound_by_a_link_takes_as_long_as_the_link() {
    let job = Job { gpus_per_node: 1, network: Network::ETHERNET_100, ..job("Llama-3-8B", 8) };
    let mesh = Mesh { dp: 8, ..Mesh::default() };
    let time = simulate(&job, &strategy(mesh)).unwrap().time;
    let bytes = 2.0 * 7.0 / 8.0 * 4.0 * job.model.parameters();
    let link = bytes / (12.5e9 * LINE_SHARE);
    assert!((time.communication[Axis::Dp as usize] / link - 1.0).abs() < 0.01);
    assert!(time.seconds > link && time.seconds < link + time.compute);
}

#[test]
fn a_search_finds_what_is_no_slower_than_any_other() {
    let job = Job { batch: 32, sequence: 2048, ..job("Llama-3-8B", 16) };
    let best = search(&job, &Given::default(), 4).unwrap();
    assert!(best.windows(2).all(|pair| pair[0].time.seconds <= pair[1].time.seconds));
    for plan in &best {
        assert!(plan.memory.peak <= job.gpu.usable());
        assert_eq!(simulate(&job, &plan.strategy).unwrap(), *plan);
    }
    for mesh in meshes() {
        let Ok(own) = search(&job, &Given { mesh: Some(mesh), ..Given::default() }, 1) else {
            continue;
        };
        let (found, own) = (best[0].time.seconds, own[0].time.seconds);
        assert!(found <= own, "{mesh} takes {own}, the best {found}");
    }
}

#[test]
fn what_is_given_is_kept() {
    let given = Given {
        recompute: Some(true),
        microbatch: Some(2),
        overlap: Some(Overlap::None),
        ..Given::default()
    };
    let job = Job { batch: 32, ..job("Llama-3-8B", 16) };
    for plan in search(&job, &given, 3).unwrap() {
        let Strategy { recompute, microbatch, overlap, .. } = plan.strategy;
        assert_eq!((recompute, microbatch, overlap), (true, 2, Overlap::None));
    }
}

/// What [`search`] says of a mesh.
fn said(job: &Job, mesh: Mesh) -> String {
    let given = Given { mesh: Some(mesh), ..Given::default() };
    search(job, &given, 1).expect_err("a mesh that can't be").to_string()
}

#[test]
fn meshes_that_can_not_be_say_why() {
    let one = Mesh::default();
    let llama = job("Llama-3-8B", 16);
    for (mesh, why) in [
        (
            Mesh { dp: 4, tp: 2, ..one },
            "dp 4 x fsdp 1 x tp 2 x cp 1 x pp 1 are 8 ranks, not 16 GPUs",
        ),
        (Mesh { tp: 16, ..one }, "tp 16 does not divide 8 heads of keys"),
        (Mesh { pp: 16, dp: 0, ..one }, "has an axis of no ranks"),
        (Mesh { dp: usize::MAX, fsdp: usize::MAX, ..one }, "has more ranks than can be counted"),
    ] {
        let said = said(&llama, mesh);
        assert!(said.contains(why), "{said}");
    }
    let cases = [
        (Job { sequence: 8200, ..llama.clone() }, Mesh { cp: 16, ..one }, "not in 32 pieces"),
        (
            Job { batch: 24, ..llama.clone() },
            Mesh { dp: 16, ..one },
            "24 sequences are no multiple",
        ),
        (job("Llama-3-8B", 64), Mesh { pp: 64, ..one }, "pp 64 is more than 32 layers"),
        (Job { sequence: 1024, ..job("GPT-2", 2) }, Mesh { pp: 2, ..one }, "GPT-2 can't be shared"),
        (Job { sequence: 2048, ..job("GPT-2", 1) }, one, "longer than the 1024 positions of GPT-2"),
        (Job { gpus_per_node: 0, ..llama.clone() }, one, "0 GPUs a node are not 1 to 1048576"),
        (Job { gpus_per_node: 12, ..llama }, one, "16 GPUs do not fill nodes of 12"),
    ];
    for (job, mesh, why) in cases {
        let said = said(&job, mesh);
        assert!(said.contains(why), "{said}");
    }
}

#[test]
fn what_does_not_fit_says_what_takes_the_memory() {
    let said = search(&job("Llama-3-70B", 8), &Given::default(), 1).unwrap_err().to_string();
    assert!(said.starts_with("plan: Llama-3-70B on 8 x h200 ("), "{said}");
    assert!(said.contains(" GB of 141.7 GB a GPU: weights "), "{said}");
}

#[test]
fn numbers_that_nobody_means_are_refused_at_once() {
    let huge = usize::MAX;
    for job in [
        Job { gpus: huge, ..job("Llama-3-8B", 8) },
        Job { gpus: 0, ..job("Llama-3-8B", 8) },
        Job { batch: huge, ..job("Llama-3-8B", 8) },
        Job { sequence: huge, ..job("Llama-3-8B", 8) },
        Job { sequence: 0, ..job("Llama-3-8B", 8) },
        Job { gpus_per_node: huge, ..job("Llama-3-8B", 8) },
        Job { model: ModelShape { layers: huge, ..model("GPT-2") }, ..job("Llama-3-8B", 8) },
        Job { model: ModelShape { kv_heads: 0, ..model("GPT-2") }, ..job("Llama-3-8B", 8) },
    ] {
        assert!(search(&job, &Given::default(), huge).is_err());
        assert!(simulate(&job, &Strategy::default()).is_err());
    }
    let job = Job { batch: 1 << 24, ..job("Llama-3-8B", 8) };
    for microbatch in [0, huge] {
        let mesh = Mesh { fsdp: 8, ..Mesh::default() };
        assert!(simulate(&job, &Strategy { microbatch, ..strategy(mesh) }).is_err());
    }
    let mesh = Mesh { fsdp: 8, ..Mesh::default() };
    let said = simulate(&job, &strategy(mesh)).unwrap_err().to_string();
    assert!(
        said.contains("2097152 microbatches of 32 layers are more than is simulated"),
        "{said}"
    );
}

#[test]
fn the_largest_searches_end() {
    let mut large = job("Llama-3-70B", 1 << 20);
    large.sequence = 1 << 17;
    let begun = std::time::Instant::now();
    assert!(!search(&large, &Given::default(), 3).unwrap().is_empty());
    println!("2^20 GPUs: {:?}", begun.elapsed());
}

#[test]
fn utilization_is_of_the_data_sheet() {
    let job = job("Llama-3-8B", 8);
    let plan = search(&job, &Given::default(), 1).unwrap()[0];
    let flops = plan.tokens_per_second(&job) * job.model.flops_per_token(8192);
    assert_eq!(plan.mfu(&job), flops / (8.0 * 989.4e12));
    assert!((0.3..0.68).contains(&plan.mfu(&job)), "{}", plan.mfu(&job));
}
