// SPDX-License-Identifier: Apache-2.0
//! Traffic that notices what it loses.

use crate::tools::SOON;
use slipswitch_tests::harness::{Host, Netns, Process, Switch, patient};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Between two packets.
const INTERVAL: Duration = Duration::from_millis(10);

/// Echo requests from one host, 100 a second until it is finished.
pub struct Ping {
    process: Process,
    output: String,
}

/// The results of echo requests.
#[derive(Debug)]
pub struct Echoes {
    /// Requests that could have been answered.
    pub sent: usize,
    /// Those that were not, by their order.
    pub lost: Vec<usize>,
}

impl Ping {
    /// Starts; the process belongs to the calling thread.
    pub fn start(switch: &Switch, from: &Host, to: &str) -> Ping {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("ping{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let arguments = ["-n", "-i", "0.01", "-W", "1", to];
        let process =
            Process::start(switch.sandbox(), Some(&from.netns), &name, "ping", &arguments);
        Ping { process, output: format!("{name}.out") }
    }

    /// Stops, and compares. Requests on their way at that moment count as not sent.
    pub fn finish(mut self, switch: &Switch) -> Echoes {
        self.process.signal("INT");
        self.process.wait(SOON);
        let text = switch.sandbox().read(&self.output);
        let mut answered: Vec<usize> = Vec::new();
        let mut last = 0usize;
        for line in text.lines() {
            let Some(number) = line.split("icmp_seq=").nth(1) else { continue };
            let number = number.split(' ').next().and_then(|n| n.parse::<u16>().ok());
            // The number has 16 bits: this is the next one that ends so.
            let step = number.expect("a number").wrapping_sub(last as u16) as i16;
            last = last.strict_add_signed(isize::from(step));
            answered.push(last);
        }
        answered.sort_unstable();
        answered.dedup();
        let sent = answered.last().copied().unwrap_or(0);
        let lost = (1..=sent).filter(|n| answered.binary_search(n).is_err()).collect();
        Echoes { sent, lost }
    }
}

impl Echoes {
    /// Nothing was lost of at least `enough` requests.
    #[track_caller]
    pub fn all(&self, enough: usize, switch: &Switch) {
        self.at_most(0, enough, switch);
    }

    /// At most `bound` of at least `enough` requests were lost.
    #[track_caller]
    pub fn at_most(&self, bound: usize, enough: usize, switch: &Switch) {
        assert!(self.sent >= enough, "only {} requests were sent", self.sent);
        let lost = self.lost.len();
        assert!(lost <= bound, "{lost} of {} lost: {:?}\n{}", self.sent, self.lost, switch.story());
    }
}

/// A TCP connection from one host to another that always has something to say.
pub struct Talk {
    stop: Arc<AtomicBool>,
    from: Netns,
    port: u16,
    writer: JoinHandle<u64>,
    reader: JoinHandle<(u64, Duration)>,
}

/// The result of a connection.
#[derive(Debug)]
pub struct Heard {
    /// Bytes that arrived, all and in order.
    pub bytes: u64,
    /// Segments that were lost and sent again.
    pub again: u64,
    /// The longest silence.
    pub silence: Duration,
}

impl Talk {
    /// Connects and starts to send, 1.2 MB a second.
    pub fn start(from: &Host, to: &Host) -> Talk {
        let address = to.address().to_owned();
        let listener =
            to.netns.with(move || TcpListener::bind((address, 0)).expect("the host's address"));
        let target = listener.local_addr().expect("it is bound");
        let reader = std::thread::spawn(move || listen(&listener));
        let stream = from
            .netns
            .with(move || TcpStream::connect_timeout(&target, SOON).expect("the switch forwards"));
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let writer = std::thread::spawn(move || speak(stream, &stopped));
        Talk { stop, from: from.netns.clone(), port: target.port(), writer, reader }
    }

    /// Ends the connection, and compares.
    pub fn finish(self) -> Heard {
        let line = format!("ss -tinH dst :{}", self.port);
        let again = retransmissions(&self.from.run(&line).stdout);
        self.stop.store(true, Ordering::Relaxed);
        let said = self.writer.join().expect("the connection holds");
        let (bytes, silence) = self.reader.join().expect("the connection holds");
        assert_eq!(bytes, said, "bytes are missing");
        Heard { bytes, again, silence }
    }
}

/// Segments that were sent again, but for those that the receiver says it had already: a busy
/// machine makes senders impatient.
fn retransmissions(text: &str) -> u64 {
    assert!(text.contains("cwnd:"), "no connection: {text}");
    let number = |name: &str| -> u64 {
        let field = text.split_whitespace().find_map(|word| word.strip_prefix(name));
        field.map_or(0, |n| n.parse().unwrap_or_else(|_| panic!("no number: {text}")))
    };
    let again = text.split_whitespace().find_map(|word| word.strip_prefix("retrans:"));
    let again = again.and_then(|f| f.split('/').nth(1));
    let again = again.map_or(0, |n| n.parse().unwrap_or_else(|_| panic!("no number: {text}")));
    u64::saturating_sub(again, number("dsack_dups:"))
}

/// The byte at a place of the stream.
fn byte(at: u64) -> u8 {
    (at % 251) as u8
}

fn speak(mut stream: TcpStream, stopped: &AtomicBool) -> u64 {
    stream.set_write_timeout(Some(patient(SOON))).expect("not zero");
    let mut said = 0;
    while !stopped.load(Ordering::Relaxed) {
        let data: Vec<u8> = (said..said + 12_000).map(byte).collect();
        stream.write_all(&data).expect("data goes on");
        said += 12_000;
        std::thread::sleep(INTERVAL);
    }
    said
}

fn listen(listener: &TcpListener) -> (u64, Duration) {
    let (mut stream, _) = listener.accept().expect("someone connects");
    stream.set_read_timeout(Some(patient(SOON))).expect("not zero");
    let mut buffer = vec![0; 1 << 16];
    let (mut heard, mut silence, mut last) = (0, Duration::ZERO, Instant::now());
    loop {
        let count = stream.read(&mut buffer).expect("data goes on");
        silence = silence.max(last.elapsed());
        last = Instant::now();
        let Some(data) = buffer.get(..count).filter(|d| !d.is_empty()) else {
            return (heard, silence);
        };
        for (at, seen) in (heard..).zip(data) {
            assert_eq!(*seen, byte(at), "the data arrived changed at {at}");
        }
        heard += count as u64;
    }
}
