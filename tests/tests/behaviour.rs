// SPDX-License-Identifier: Apache-2.0
//! Runs the behaviour suite over each datapath: `model`, `userspace` (dummy ports, no privileges),
//! `veth` (the userspace datapath over real veth pairs), `tcx` and `xdp` (the BPF tiers above it,
//! over such pairs), and `tc` (filters that the kernel runs, above tcx). These need root. In `card`, a made-up card sees the packets first and
//! takes some of them. In `chaos`, three of ten calls fail on purpose, and each case still has the
//! same outputs; `SLIPSWITCH_TEST_CHAOS=1` adds chaos over tcx.

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

mod kernel {
    use slipswitch_tests::behaviour::{World, run_on_kernel};

    fn run(name: &'static str, case: fn(&World)) {
        run_on_kernel(name, case);
    }

    slipswitch_tests::behaviour_cases!();
}

mod tc {
    use datapath::Tier;
    use slipswitch_tests::behaviour::{World, run_at};

    fn run(name: &'static str, case: fn(&World)) {
        run_at(Tier::Tc, name, case);
    }

    slipswitch_tests::behaviour_cases!();
}

mod card {
    mod userspace {
        use slipswitch_tests::behaviour::{UserspaceDummy, World};

        fn run(_: &str, case: fn(&World)) {
            case(&World::new(UserspaceDummy::under_card()));
        }

        slipswitch_tests::behaviour_cases!();
    }

    mod tcx {
        use datapath::Tier;
        use slipswitch_tests::behaviour::{World, run_under_card};

        fn run(name: &'static str, case: fn(&World)) {
            run_under_card(Tier::Tcx, name, case);
        }

        slipswitch_tests::behaviour_cases!();
    }

    mod xdp {
        use datapath::Tier;
        use slipswitch_tests::behaviour::{World, run_under_card};

        fn run(name: &'static str, case: fn(&World)) {
            run_under_card(Tier::Xdp, name, case);
        }

        slipswitch_tests::behaviour_cases!();
    }
}

mod chaos {
    use datapath::Tier;
    use slipswitch_tests::behaviour::{
        Chaotic, Fixture, ModelFixture, UserspaceDummy, Veth, World,
    };

    /// Prints the number of faults, for the reader of the output.
    fn under<F: Fixture + 'static>(name: &str, case: fn(&World), fixture: F, seed: u64) {
        let fixture = Chaotic::new(fixture, seed);
        let chaos = fixture.chaos();
        case(&World::new(fixture));
        eprintln!("{name}: {} faults", chaos.faults());
    }

    mod model {
        use super::*;

        fn run(name: &str, case: fn(&World)) {
            (0..8).for_each(|seed| under(name, case, ModelFixture::new(), seed));
        }

        slipswitch_tests::behaviour_cases!();
    }

    mod userspace {
        use super::*;

        fn run(name: &str, case: fn(&World)) {
            (0..4).for_each(|seed| under(name, case, UserspaceDummy::new(), seed));
        }

        slipswitch_tests::behaviour_cases!();
    }

    mod tcx {
        use super::*;

        fn run(name: &'static str, case: fn(&World)) {
            if std::env::var_os("SLIPSWITCH_TEST_CHAOS").is_none() {
                slipswitch_tests::harness::skip("takes a minute: set SLIPSWITCH_TEST_CHAOS=1");
                return;
            }
            Veth::run(Tier::Tcx, move |fixture| under(name, case, fixture, 1));
        }

        slipswitch_tests::behaviour_cases!();
    }
}
