//! Runs the behaviour suite over each datapath: `model`, `userspace` (dummy ports, no
//! privileges) and `veth` (the userspace datapath over real veth pairs; needs root).

mod model {
    use slipswitch_tests::behaviour::{ModelFixture, World};

    fn run(case: fn(&World)) {
        case(&World::new(ModelFixture::new()));
    }

    slipswitch_tests::behaviour_cases!();
}

mod userspace {
    use slipswitch_tests::behaviour::{UserspaceDummy, World};

    fn run(case: fn(&World)) {
        case(&World::new(UserspaceDummy::new()));
    }

    slipswitch_tests::behaviour_cases!();
}

mod veth {
    use slipswitch_tests::behaviour::{UserspaceVeth, World};

    fn run(case: fn(&World)) {
        UserspaceVeth::run(move |fixture| case(&World::new(fixture)));
    }

    slipswitch_tests::behaviour_cases!();
}
