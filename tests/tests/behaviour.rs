//! Runs the behaviour suite over each datapath: `model`, `userspace` (dummy ports, no
//! privileges), `veth` (the userspace datapath over real veth pairs), `tcx` and `xdp` (the BPF
//! tiers above it, over such pairs). The last three need root.

mod model {
    use slipswitch_tests::behaviour::{ModelFixture, World};

    fn run(_: &str, case: fn(&World)) {
        case(&World::new(ModelFixture::new()));
    }

    slipswitch_tests::behaviour_cases!();
}

mod userspace {
    use slipswitch_tests::behaviour::{UserspaceDummy, World};

    fn run(_: &str, case: fn(&World)) {
        case(&World::new(UserspaceDummy::new()));
    }

    slipswitch_tests::behaviour_cases!();
}

mod veth {
    use datapath::Tier;
    use slipswitch_tests::behaviour::{World, run_at};

    fn run(name: &'static str, case: fn(&World)) {
        run_at(Tier::Userspace, name, case);
    }

    slipswitch_tests::behaviour_cases!();
}

mod tcx {
    use datapath::Tier;
    use slipswitch_tests::behaviour::{World, run_at};

    fn run(name: &'static str, case: fn(&World)) {
        run_at(Tier::Tcx, name, case);
    }

    slipswitch_tests::behaviour_cases!();
}

mod xdp {
    use datapath::Tier;
    use slipswitch_tests::behaviour::{World, run_at};

    fn run(name: &'static str, case: fn(&World)) {
        run_at(Tier::Xdp, name, case);
    }

    slipswitch_tests::behaviour_cases!();
}
