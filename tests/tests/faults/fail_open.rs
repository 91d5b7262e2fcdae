// SPDX-License-Identifier: Apache-2.0
//! Fail-open: a standalone bridge forwards by itself while no controller has admitted the switch.

use crate::controller::{message, read};
use crate::tools::SOON;
use slipswitch_tests::harness::{Kind, Mode, Switch, wait_until};
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const FRAME: &str = "50540000000250540000000188cc0000";
/// Three probe intervals of the controllers here.
const TRIGGER: Duration = Duration::from_secs(3);
const HELLO: u8 = 0;
const ECHO_REQUEST: u8 = 2;
const ECHO_REPLY: u8 = 3;
const FEATURES_REQUEST: u8 = 5;
const PACKET_IN: u8 = 10;
const BARRIER_REQUEST: u8 = 20;
const ROLE_REQUEST: u8 = 24;

/// Action of a controller on a connection.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Does {
    /// Sends nothing and answers nothing.
    Nothing,
    /// Closes the connection 200 ms after it has sent its messages.
    Closes,
    /// Answers echo requests.
    Echoes,
    /// Answers echo requests, and sends a barrier after each packet-in.
    Reacts,
}

/// A controller on a port of its own.
struct Controller {
    port: u16,
    accepted: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    streams: Arc<Mutex<Vec<TcpStream>>>,
}

impl Controller {
    /// A controller that sends `first` on each connection and then acts by `does`.
    fn start(port: u16, first: &[Vec<u8>], does: Does) -> Controller {
        let listener = TcpListener::bind(("127.0.0.1", port)).expect("the port is free");
        let port = listener.local_addr().expect("it is bound").port();
        listener.set_nonblocking(true).expect("sockets can be");
        let accepted = Arc::new(AtomicUsize::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let streams = Arc::new(Mutex::new(Vec::new()));
        let (count, stopped, kept) =
            (Arc::clone(&accepted), Arc::clone(&stop), Arc::clone(&streams));
        let first = first.concat();
        std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                if let Ok((stream, _)) = listener.accept() {
                    count.fetch_add(1, Ordering::Relaxed);
                    stream.set_nonblocking(false).expect("sockets can be");
                    kept.lock().expect("no panic").push(stream.try_clone().expect("descriptors"));
                    let first = first.clone();
                    std::thread::spawn(move || serve(stream, &first, does));
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        Controller { port, accepted, stop, streams }
    }

    fn target(&self) -> String {
        format!("tcp:127.0.0.1:{}", self.port)
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for stream in self.streams.lock().expect("no panic").drain(..) {
            let _ = stream.shutdown(std::net::Shutdown::Both); // it may be closed already
        }
        std::thread::sleep(Duration::from_millis(50)); // the listener closes
    }
}

fn serve(mut stream: TcpStream, first: &[u8], does: Does) {
    let _ = stream.write_all(first); // the bridge may have closed the connection
    match does {
        Does::Nothing => std::thread::sleep(Duration::from_secs(600)),
        Does::Closes => std::thread::sleep(Duration::from_millis(200)),
        Does::Echoes | Does::Reacts => {
            while let Some(got) = read(&mut stream) {
                let answer = match got[1] {
                    ECHO_REQUEST => message(ECHO_REPLY, 0, &[]),
                    PACKET_IN if does == Does::Reacts => message(BARRIER_REQUEST, 9, &[]),
                    _ => continue,
                };
                if stream.write_all(&answer).is_err() {
                    return;
                }
            }
        }
    }
}

fn hello() -> Vec<u8> {
    message(HELLO, 1, &[])
}

/// Admits the switch.
fn barrier() -> Vec<u8> {
    message(BARRIER_REQUEST, 2, &[])
}

/// A dummy switch with a standalone bridge and two ports.
fn switch() -> Switch {
    let switch = Switch::start(Kind::under_test(), Mode::Dummy);
    switch.vsctl("add-br br0 -- set bridge br0 datapath_type=dummy fail_mode=standalone");
    for port in ["p1", "p2"] {
        switch.vsctl(&format!(
            "add-port br0 {port} -- set interface {port} type=dummy options:tx_pcap={port}-tx.pcap"
        ));
    }
    switch
}

fn set_controllers(switch: &Switch, targets: &[String]) {
    switch.vsctl(&format!("set-controller br0 {}", targets.join(" ")));
    for row in switch.vsctl("--bare --columns=_uuid list controller").split_whitespace() {
        switch.vsctl(&format!("set controller {row} max_backoff=1000 inactivity_probe=1000"));
    }
}

fn is_open(switch: &Switch) -> bool {
    switch.appctl("bridge/dump-flows br0").contains("actions=NORMAL")
}

#[track_caller]
fn opens(switch: &Switch) {
    assert!(wait_until(SOON, || is_open(switch)), "{}", switch.story());
    let before = switch.sent("p2").len();
    switch.receive("p1", FRAME);
    assert_eq!(switch.sent("p2").len(), before + 1, "{}", switch.story());
}

#[track_caller]
fn closes(switch: &Switch) {
    assert!(wait_until(SOON, || !is_open(switch)), "{}", switch.story());
}

#[test]
fn controllers_that_do_not_admit_the_switch_do_not_keep_a_bridge_from_forwarding() {
    let asks = [hello(), message(FEATURES_REQUEST, 2, &[])];
    let cases: [(&[Vec<u8>], Does); 6] = [
        (&[], Does::Nothing),
        (&[], Does::Closes),
        (&asks[..1], Does::Nothing),
        (&asks[..1], Does::Closes),
        (&asks, Does::Closes),
        (&asks, Does::Echoes),
    ];
    std::thread::scope(|scope| {
        for (first, does) in cases {
            scope.spawn(move || {
                let controller = Controller::start(0, first, does);
                let switch = switch();
                set_controllers(&switch, &[controller.target()]);
                assert!(!is_open(&switch), "it waits for three probe intervals");
                opens(&switch);
                // The bridge stays open while such a controller comes and goes.
                for _ in 0..8 {
                    std::thread::sleep(Duration::from_millis(300));
                    assert!(is_open(&switch), "{does:?}: {}", switch.story());
                }
                assert!(controller.accepted.load(Ordering::Relaxed) > 0);
            });
        }
    });
}

#[test]
fn rules_go_when_a_bridge_fails_open_and_do_not_come_back() {
    let switch = switch();
    let nobody = Controller::start(0, &[], Does::Closes);
    let port = nobody.port;
    drop(nobody);
    set_controllers(&switch, &[format!("tcp:127.0.0.1:{port}")]);
    switch.ofctl("add-flow br0 priority=5,in_port=1,actions=drop");
    opens(&switch);
    assert!(!switch.ofctl("dump-flows br0").contains("priority=5"));
    switch.ofctl("add-flow br0 priority=6,in_port=2,actions=drop");
    let controller = Controller::start(port, &[hello(), barrier()], Does::Echoes);
    closes(&switch);
    let flows = switch.ofctl("dump-flows br0");
    assert!(!flows.contains("priority=5") && flows.contains("priority=6"), "{flows}");
    let before = switch.sent("p2").len();
    switch.receive("p1", FRAME);
    assert_eq!(switch.sent("p2").len(), before, "the tables decide again");
    // A controller that is there and silent but for echoes stays in charge.
    std::thread::sleep(TRIGGER + Duration::from_secs(1));
    assert!(!is_open(&switch), "{}", switch.story());
    drop(controller);
    opens(&switch);
    assert!(!switch.ofctl("dump-flows br0").contains("priority=6"));
}

#[test]
fn one_controller_of_several_is_enough_whatever_its_role() {
    let switch = switch();
    let role = [[0, 0, 0, 3, 0, 0, 0, 0].as_slice(), &[0; 8]].concat(); // slave, generation 0
    let slave = Controller::start(0, &[hello(), message(ROLE_REQUEST, 3, &role)], Does::Echoes);
    let bad = Controller::start(0, &[hello()], Does::Closes);
    set_controllers(&switch, &[bad.target(), slave.target(), "tcp:127.0.0.1:1".to_owned()]);
    std::thread::sleep(TRIGGER + Duration::from_secs(2));
    assert!(!is_open(&switch), "{}", switch.story());
    drop(slave);
    opens(&switch);
}

#[test]
fn a_controller_that_acts_on_packets_only_gets_one_to_admit_the_switch_by() {
    let switch = switch();
    let nobody = Controller::start(0, &[], Does::Closes);
    let port = nobody.port;
    drop(nobody);
    set_controllers(&switch, &[format!("tcp:127.0.0.1:{port}")]);
    opens(&switch);
    let _controller = Controller::start(port, &[hello()], Does::Reacts);
    closes(&switch);
}

#[test]
fn a_secure_bridge_never_opens() {
    let switch = switch();
    set_controllers(&switch, &["tcp:127.0.0.1:1".to_owned()]);
    opens(&switch);
    switch.vsctl("set bridge br0 fail_mode=secure");
    closes(&switch);
    switch.ofctl("add-flow br0 priority=5,in_port=1,actions=drop");
    std::thread::sleep(TRIGGER + Duration::from_secs(1));
    assert!(!is_open(&switch), "{}", switch.story());
    assert!(switch.ofctl("dump-flows br0").contains("priority=5"));
}
