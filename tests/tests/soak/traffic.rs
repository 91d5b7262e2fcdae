// SPDX-License-Identifier: Apache-2.0
//! Traffic that goes on all the time between two hosts.

use slipswitch_tests::harness::Host;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

/// Echo requests in one go.
const ECHOES: u32 = 50;
/// Bytes of one connection.
const BYTES: usize = 4 << 20;
const PATIENCE: Duration = Duration::from_secs(10);

/// The results of the traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    pub asked: u64,
    pub answered: u64,
    /// TCP connections that carried all their data.
    pub connections: u64,
    /// Those that did not.
    pub broken: u64,
}

#[derive(Default)]
struct Counters {
    stop: AtomicBool,
    asked: AtomicU64,
    answered: AtomicU64,
    connections: AtomicU64,
    broken: AtomicU64,
}

/// Echo requests, and TCP connections one after the other, until it is finished.
pub struct Traffic {
    counters: Arc<Counters>,
    threads: Vec<JoinHandle<()>>,
}

impl Traffic {
    /// From the first host to the second.
    pub fn start(from: &Host, to: &Host) -> Traffic {
        let counters = Arc::new(Counters::default());
        let mut threads = vec![echoes(from, to, &counters)];
        let (address, listens) = mpsc::channel();
        let own = to.address().to_owned();
        let serving = Arc::clone(&counters);
        threads.push(to.netns.spawn(move || {
            let listener = TcpListener::bind((own.as_str(), 0)).expect("the host's address");
            address.send(listener.local_addr().expect("it is bound")).expect("somebody waits");
            for stream in listener.incoming() {
                if serving.stop.load(Ordering::Relaxed) {
                    return;
                }
                let whole = stream.is_ok_and(swallow);
                let count = if whole { &serving.connections } else { &serving.broken };
                count.fetch_add(1, Ordering::Relaxed);
            }
        }));
        let target = listens.recv().expect("it listens");
        let sending = Arc::clone(&counters);
        threads.push(from.netns.spawn(move || {
            let data = vec![7; BYTES];
            while !sending.stop.load(Ordering::Relaxed) {
                let connected = TcpStream::connect_timeout(&target, PATIENCE);
                // The other side has counted incomplete transfers; failed connections are counted
                // here.
                match connected {
                    Ok(mut stream) => drop(stream.write_all(&data)),
                    Err(_) => drop(sending.broken.fetch_add(1, Ordering::Relaxed)),
                }
                std::thread::sleep(Duration::from_millis(50));
            }
            drop(TcpStream::connect_timeout(&target, PATIENCE)); // wakes the other end
        }));
        Traffic { counters, threads }
    }

    /// So far.
    pub fn seen(&self) -> Seen {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let c = &self.counters;
        // In this order, so that an answer has its request.
        let answered = of(&c.answered);
        Seen {
            asked: of(&c.asked),
            answered,
            connections: of(&c.connections),
            broken: of(&c.broken),
        }
    }

    /// Ends it.
    pub fn finish(mut self) -> Seen {
        self.counters.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().expect("traffic does not fail");
        }
        self.seen()
    }
}

fn echoes(from: &Host, to: &Host, counters: &Arc<Counters>) -> JoinHandle<()> {
    let counters = Arc::clone(counters);
    let (from, target) = (from.clone(), to.address().to_owned());
    std::thread::spawn(move || {
        while !counters.stop.load(Ordering::Relaxed) {
            let answered = from.ping(&target, ECHOES);
            counters.asked.fetch_add(ECHOES.into(), Ordering::Relaxed);
            counters.answered.fetch_add(answered.into(), Ordering::Relaxed);
        }
    })
}

/// Reads all of one connection; true when it is all that was sent.
fn swallow(mut stream: TcpStream) -> bool {
    let mut buffer = vec![0; 256 << 10];
    let mut bytes = 0;
    if stream.set_read_timeout(Some(PATIENCE)).is_err() {
        return false;
    }
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return bytes == BYTES,
            Ok(n) => bytes += n,
            Err(_) => return false,
        }
    }
}
