// SPDX-License-Identifier: Apache-2.0
//! The client against Debian's ovsdb-server and ovs-vsctl.

mod support;

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ovsdb::{
    Change, Client, ClientOptions, Datum, Mutator, Outcome, Remote, SessionOptions, TlsOptions,
    Transaction, Until,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tracing_subscriber::layer::SubscriberExt;

use support::{Server, available, on_runtime, spec, tls_available, until};

fn names(client: &Client, table: &str) -> Vec<String> {
    let mut names: Vec<String> =
        client.replica().rows(table).map(|(_, row)| row.str("name").to_owned()).collect();
    names.sort();
    names
}

/// The changes of a table since the last look, as "kind name".
fn changes(client: &Client, table: &str) -> Vec<String> {
    let changes = client.take_changes();
    let replica = client.replica();
    let mut texts: Vec<String> = changes
        .table(table)
        .map(|(uuid, change)| match change {
            Change::Inserted => {
                format!("+{}", replica.row(table, uuid).expect("inserted").str("name"))
            }
            Change::Modified { old, columns } => {
                format!("~{} {}", old.str("name"), columns.join(","))
            }
            Change::Deleted { old } => format!("-{}", old.str("name")),
        })
        .collect();
    texts.sort();
    texts
}

fn locking() -> SessionOptions {
    SessionOptions { lock: Some("ovs_vswitchd".into()), ..SessionOptions::default() }
}

#[test]
fn content_updates_and_own_transactions() {
    if !available() {
        return;
    }
    let mut server = Server::new();
    server.start("db.sock");
    server
        .vsctl("init -- add-br br0 -- add-port br0 p1 tag=7 -- set interface p1 ofport_request=5");
    on_runtime(async {
        let client = server.client(locking());
        until(&client, "first copy", |c| c.is_synchronized() && c.has_lock()).await;
        assert_eq!(names(&client, "Bridge"), ["br0"]);
        assert_eq!(names(&client, "Interface"), ["br0", "p1"]);
        let replica = client.replica();
        assert_eq!(replica.schema().name, "Open_vSwitch");
        assert!(!replica.monitors("Open_vSwitch", "no_such"));
        let (_, bridge) = replica.first("Bridge").unwrap();
        let port = bridge
            .uuids("ports")
            .filter_map(|uuid| replica.row("Port", uuid))
            .find(|port| port.str("name") == "p1")
            .expect("p1 is a port of br0");
        assert_eq!(port.opt_int("tag"), Some(7));
        let interface = replica.row("Interface", port.opt_uuid("interfaces").unwrap()).unwrap();
        assert_eq!(interface.opt_int("ofport_request"), Some(5));
        assert_eq!(interface.opt_int("ofport"), None);
        client.take_changes();

        // Live: sets, maps, optional values, insertions and deletions.
        server.vsctl("set port p1 trunks=1,2,3 -- clear port p1 tag -- set bridge br0 other_config:a=1 other_config:b=2");
        until(&client, "trunks", |c| {
            c.replica().rows("Port").any(|(_, p)| p.ints("trunks").count() == 3)
        })
        .await;
        assert_eq!(changes(&client, "Port"), ["~p1 tag,trunks"]);
        server.vsctl("remove port p1 trunks 2 -- remove bridge br0 other_config a -- set bridge br0 other_config:b=3 other_config:c=4 -- add-port br0 p2");
        until(&client, "p2", |c| names(c, "Port").len() == 3).await;
        let replica = client.replica();
        let port = replica.rows("Port").find(|(_, p)| p.str("name") == "p1").unwrap().1;
        assert_eq!(port.ints("trunks").collect::<Vec<_>>(), [1, 3]);
        let (bridge_uuid, bridge) = replica.first("Bridge").unwrap();
        let config: Vec<_> = bridge.map("other_config").iter().collect();
        assert_eq!(config, [("b", "3"), ("c", "4")]);

        // Our own writes: seen by ovs-vsctl, and in the replica when the outcome comes.
        let (root, row) = replica.first("Open_vSwitch").unwrap();
        let next = row.int("next_cfg");
        let mut txn = Transaction::new().guarded();
        assert!(client.set_if_changed(&mut txn, "Open_vSwitch", root, "cur_cfg", next + 41));
        assert!(client.set_if_changed(
            &mut txn,
            "Open_vSwitch",
            root,
            "datapath_types",
            Datum::set(["system", "netdev"])
        ));
        assert!(!client.set_if_changed(&mut txn, "Open_vSwitch", root, "no_such", "x"));
        let p2 = replica.rows("Interface").find(|(_, i)| i.str("name") == "p2").unwrap().0;
        txn.set("Interface", p2, "statistics", Datum::map([("rx_packets", 3), ("tx_packets", 4)]));
        txn.set("Interface", p2, "error", "could not open network device p2");
        txn.mutate("Open_vSwitch", root, "external_ids", Mutator::Insert, Datum::map([("k", "v")]));
        txn.wait("Bridge", bridge_uuid, Until::Equal, 0, [("name", Datum::from("br0"))]);
        txn.wait("Bridge", bridge_uuid, Until::Equal, 0, std::iter::empty::<(String, Datum)>());
        txn.comment("a test");
        let answer = client.submit(txn);
        // While it is in flight the replica's value is no reason to skip a write.
        let mut again = Transaction::new();
        assert!(client.set_if_changed(&mut again, "Open_vSwitch", root, "cur_cfg", 0));
        let outcome = answer.await.unwrap();
        assert!(matches!(outcome, Outcome::Committed(_)), "{outcome:?}");
        let replica = client.replica();
        let row = replica.row("Open_vSwitch", root).unwrap();
        assert_eq!(row.int("cur_cfg"), next + 41);
        assert_eq!(row.map("external_ids").get("k"), Some("v"));
        assert_eq!(server.vsctl("get open_vswitch . cur_cfg"), (next + 41).to_string());
        assert_eq!(server.vsctl("get interface p2 statistics"), "{rx_packets=3, tx_packets=4}");
        let mut txn = Transaction::new();
        assert!(!client.set_if_changed(&mut txn, "Open_vSwitch", root, "cur_cfg", next + 41));

        // Insertion with a reference, and deletion.
        let mut txn = Transaction::new();
        let interface = txn.insert("Interface", [("name", Datum::from("p3"))]);
        let port = txn
            .insert("Port", [("name", Datum::from("p3")), ("interfaces", Datum::from(&interface))]);
        txn.mutate("Bridge", bridge_uuid, "ports", Mutator::Insert, &port);
        let Outcome::Committed(committed) = client.submit(txn).await.unwrap() else { panic!() };
        let p3 = committed.inserted(&port).unwrap();
        assert_eq!(client.replica().row("Port", p3).unwrap().str("name"), "p3");
        assert!(server.vsctl("list-ports br0").contains("p3"));
        let mut txn = Transaction::new();
        txn.mutate("Bridge", bridge_uuid, "ports", Mutator::Delete, p3);
        assert!(matches!(client.submit(txn).await.unwrap(), Outcome::Committed(_)));
        assert!(client.replica().row("Port", p3).is_none());

        // Refusals.
        let mut txn = Transaction::new();
        txn.set("Bridge", bridge_uuid, "fail_mode", "sideways");
        let Outcome::Failed(text) = client.submit(txn).await.unwrap() else { panic!() };
        assert!(
            text.contains("update of Bridge") && text.contains("constraint violation"),
            "{text}"
        );
        let mut txn = Transaction::new();
        txn.wait("Bridge", bridge_uuid, Until::Equal, 0, [("name", Datum::from("br9"))]);
        assert!(matches!(client.submit(txn).await.unwrap(), Outcome::TryAgain(_)));
    });
}

#[test]
fn the_lock_is_held_by_one() {
    if !available() {
        return;
    }
    let mut server = Server::new();
    server.start("db.sock");
    server.vsctl("init");
    on_runtime(async {
        let first = server.client(locking());
        until(&first, "first", |c| c.is_synchronized() && c.has_lock()).await;
        let second = server.client(locking());
        until(&second, "second", |c| c.is_synchronized()).await;
        assert!(!second.has_lock());
        let (root, _) =
            second.replica().first("Open_vSwitch").map(|(u, r)| (u, r.clone())).unwrap();
        let mut txn = Transaction::new().guarded();
        txn.set("Open_vSwitch", root, "cur_cfg", 1);
        assert_eq!(second.submit(txn.clone()).await.unwrap(), Outcome::NotLocked);
        drop(first);
        until(&second, "the lock", Client::has_lock).await;
        assert!(matches!(second.submit(txn).await.unwrap(), Outcome::Committed(_)));
    });
}

#[test]
fn a_restarted_server_gives_the_right_difference() {
    if !available() {
        return;
    }
    let mut server = Server::new();
    let mut elsewhere = None;
    server.start("db.sock");
    server.vsctl("init -- add-br br0 -- add-br br1 -- add-br br2");
    on_runtime(async {
        let client = server.client(locking());
        until(&client, "first copy", |c| c.is_synchronized() && c.has_lock()).await;
        assert_eq!(changes(&client, "Bridge"), ["+br0", "+br1", "+br2"]);
        server.stop();
        until(&client, "the end", |c| !c.state().connected).await;
        assert!(!client.has_lock());
        assert_eq!(names(&client, "Bridge").len(), 3, "the copy stays");
        let mut txn = Transaction::new();
        txn.set("Bridge", client.replica().first("Bridge").unwrap().0, "fail_mode", "secure");
        assert!(matches!(client.submit(txn).await.unwrap(), Outcome::TryAgain(_)));

        // A change while the client is disconnected.
        server.start("elsewhere.sock");
        elsewhere = Some(server.vsctl_on(
            "elsewhere.sock",
            "del-br br1 -- add-br br3 -- set bridge br2 fail_mode=secure",
        ));
        server.stop();
        server.start("db.sock");
        until(&client, "the second copy", Client::is_synchronized).await;
        assert_eq!(changes(&client, "Bridge"), ["+br3", "-br1", "~br2 fail_mode"]);
        until(&client, "the lock", Client::has_lock).await;
        server.vsctl("del-br br3");
        until(&client, "updates go on", |c| names(c, "Bridge") == ["br0", "br2"]).await;
    });
    assert_eq!(elsewhere.as_deref(), Some(""));
}

#[test]
fn a_transaction_that_the_server_never_answered_is_to_try_again() {
    if !available() {
        return;
    }
    let mut server = Server::new();
    server.start("db.sock");
    server.vsctl("init");
    on_runtime(async {
        let client = server.client(SessionOptions::default());
        until(&client, "first copy", |c| c.is_synchronized()).await;
        server.signal("STOP");
        let root = client.replica().first("Open_vSwitch").unwrap().0;
        let mut txn = Transaction::new();
        txn.set("Open_vSwitch", root, "cur_cfg", 1);
        let mut answer = client.submit(txn);
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(answer.try_recv().is_err(), "no answer yet");
        server.stop();
        assert!(matches!(answer.await.unwrap(), Outcome::TryAgain(_)));
    });
}

#[test]
fn a_silent_server_is_left_and_found_again() {
    if !available() {
        return;
    }
    let mut server = Server::new();
    server.start("db.sock");
    server.vsctl("init");
    on_runtime(async {
        let options = SessionOptions { probe_interval: Duration::from_secs(1), ..locking() };
        let client = server.client(options);
        until(&client, "first copy", |c| c.is_synchronized()).await;
        tokio::time::sleep(Duration::from_millis(2500)).await;
        assert!(client.is_synchronized(), "probes that are answered keep the connection");
        server.signal("STOP");
        until(&client, "the end", |c| !c.is_synchronized()).await;
        let error = client.state().last_error.unwrap_or_default();
        assert_eq!(error, "no response to inactivity probe after 1 seconds, disconnecting");
        server.signal("CONT");
        until(&client, "the second copy", |c| c.is_synchronized() && c.has_lock()).await;
    });
}

#[test]
fn a_server_that_comes_late_and_lives_deep_is_found() {
    if !available() {
        return;
    }
    let mut server = Server::new();
    let deep = "d".repeat(120);
    std::fs::create_dir(server.path(&deep)).unwrap();
    on_runtime(async {
        let nowhere = Remote::parse("unix:nowhere.sock", server.directory.path()).unwrap();
        let client = Client::start(vec![nowhere.clone()], spec(), ClientOptions::default());
        until(&client, "the failure", |c| c.state().last_error.is_some()).await;
        assert_eq!(
            client.state().last_error.unwrap(),
            "connection attempt failed (No such file or directory)"
        );
        assert!(!client.state().connected);
        // A path longer than a socket address: the server, too, gets there by its directory.
        server.start("db.sock");
        std::fs::rename(server.path("db.sock"), server.path(&deep).join("db.sock")).unwrap();
        let there =
            Remote::parse(&format!("unix:{deep}/db.sock"), server.directory.path()).unwrap();
        client.set_remotes(vec![nowhere, there]);
        until(&client, "the first copy", Client::is_synchronized).await;
        assert_eq!(client.state().remote, format!("unix:{deep}/db.sock"));
        client.reconnect();
        until(&client, "the drop", |c| !c.is_synchronized()).await;
        until(&client, "the second copy", Client::is_synchronized).await;
    });
}

#[test]
fn junk_is_left_for_a_server_that_talks_sense() {
    if !available() {
        return;
    }
    let mut server = Server::new();
    server.start("db.sock");
    let listener = std::os::unix::net::UnixListener::bind(server.path("junk.sock")).unwrap();
    let thread = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
        // Until the client hangs up.
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    });
    on_runtime(async {
        let remotes =
            Remote::parse_list("unix:junk.sock,unix:db.sock", server.directory.path()).unwrap();
        let client = Client::start(remotes, spec(), ClientOptions::default());
        until(&client, "the first copy", Client::is_synchronized).await;
        assert_eq!(
            client.state().last_error.as_deref(),
            Some("error parsing stream: a JSON object must start with '{', not byte 0x48")
        );
    });
    thread.join().unwrap();
}

#[test]
fn a_schema_with_fewer_columns_is_fine() {
    if !available() {
        return;
    }
    let text = std::fs::read_to_string(support::SCHEMA).unwrap();
    let mut schema: serde_json::Value = serde_json::from_str(&text).unwrap();
    let tables = &mut schema["tables"];
    tables["Interface"]["columns"].as_object_mut().unwrap().remove("ofport_request");
    tables["Open_vSwitch"]["columns"].as_object_mut().unwrap().remove("datapath_types");
    tables["Open_vSwitch"]["columns"].as_object_mut().unwrap().remove("datapaths");
    tables.as_object_mut().unwrap().remove("Datapath");
    tables.as_object_mut().unwrap().remove("CT_Zone");
    tables.as_object_mut().unwrap().remove("CT_Timeout_Policy");
    let members = schema.as_object_mut().unwrap();
    members.remove("cksum");
    members.insert("version".into(), "8.0.0".into());
    let directory = testing::directory();
    let file = directory.path().join("old.ovsschema");
    std::fs::write(&file, schema.to_string()).unwrap();
    let mut server = Server::with_schema(&file);
    server.start("db.sock");
    on_runtime(async {
        let client = server.client(SessionOptions::default());
        until(&client, "the first copy", Client::is_synchronized).await;
        let mut txn = Transaction::new();
        txn.insert("Open_vSwitch", std::iter::empty::<(String, Datum)>());
        assert!(matches!(client.submit(txn).await.unwrap(), Outcome::Committed(_)));
        let replica = client.replica();
        let (root, row) = replica.first("Open_vSwitch").unwrap();
        assert_eq!(row.strs("datapath_types").count(), 0);
        assert_eq!(replica.rows("Datapath").count(), 0);
        let mut txn = Transaction::new();
        assert!(!client.set_if_changed(&mut txn, "Open_vSwitch", root, "datapath_types", "netdev"));
        assert!(txn.is_empty());
    });
}

#[test]
fn tls_trusts_the_ca_and_nobody_else() {
    if !tls_available() {
        return;
    }
    let mut server = Server::new();
    let port = server.start_tls();
    server.vsctl("init -- add-br br0");
    on_runtime(async {
        let here = server.directory.path();
        let remote = |host: &str| Remote::parse(&format!("ssl:{host}:{port}"), here).unwrap();
        let tls = |ca: &str, bootstrap| TlsOptions {
            private_key: here.join("client-privkey.pem"),
            certificate: here.join("client-cert.pem"),
            ca_certificate: here.join(ca),
            bootstrap,
            peer_ca_certificate: None,
            policy: tls::Policy::default(),
        };
        let client = |host: &str, tls: Option<TlsOptions>| {
            let options = ClientOptions { tls, ..ClientOptions::default() };
            Client::start(vec![remote(host)], spec(), options)
        };
        for host in ["127.0.0.1", "localhost"] {
            let good = client(host, Some(tls("pki/switchca/cacert.pem", false)));
            until(&good, "the first copy", Client::is_synchronized).await;
            assert_eq!(names(&good, "Bridge"), ["br0"]);
        }
        let failure = async |options, words: &str| {
            let client = client("127.0.0.1", options);
            until(&client, words, |c| c.state().last_error.is_some()).await;
            let error = client.state().last_error.unwrap();
            assert!(error.contains(words), "{error}");
            client
        };
        failure(Some(tls("pki/controllerca/cacert.pem", false)), "invalid peer certificate").await;
        failure(Some(tls("none.pem", false)), "none.pem: No such file or directory").await;
        failure(Some(tls("server.log", false)), "server.log: holds no PEM certificate").await;
        failure(None, "must be configured to use SSL").await;
        // The first connection fetches the CA, the next one is checked against it.
        let bootstrapped = failure(Some(tls("fetched.pem", true)), "CA certificate saved").await;
        until(&bootstrapped, "the first copy", Client::is_synchronized).await;
        let body = |file: &str| {
            let text = std::fs::read_to_string(here.join(file)).unwrap();
            text.split("-----").nth(2).map(|b| b.replace('\n', "")).unwrap()
        };
        assert_eq!(body("fetched.pem"), body("pki/switchca/cacert.pem"));
    });
}

#[test]
fn a_large_database_comes_over_whole() {
    if !available() {
        return;
    }
    let mut server = Server::new();
    server.start("db.sock");
    server.vsctl("init -- add-br br0");
    on_runtime(async {
        let client = server.client(SessionOptions::default());
        until(&client, "the first copy", Client::is_synchronized).await;
        let (bridge, _) = client.replica().first("Bridge").map(|(u, r)| (u, r.clone())).unwrap();
        let mut txn = Transaction::new();
        let filler = "x".repeat(4000);
        let ports: Vec<_> = (0..2000)
            .map(|n| {
                let name = format!("p{n}");
                let ids = Datum::map([("filler", filler.as_str())]);
                let interface =
                    txn.insert("Interface", [("name", Datum::from(&name)), ("external_ids", ids)]);
                txn.insert(
                    "Port",
                    [("name", Datum::from(&name)), ("interfaces", Datum::from(&interface))],
                )
            })
            .collect();
        txn.mutate("Bridge", bridge, "ports", Mutator::Insert, Datum::set(&ports));
        let outcome = client.submit(txn).await.unwrap();
        assert!(matches!(outcome, Outcome::Committed(_)), "{outcome:?}");
        assert_eq!(client.replica().len("Port"), 2001);
        let fresh = server.client(SessionOptions::default());
        until(&fresh, "the first copy", Client::is_synchronized).await;
        assert_eq!(fresh.replica().len("Interface"), 2001);
        // A client that does not want that much says so, and keeps trying.
        let small =
            server.client(SessionOptions { max_message: 1 << 20, ..SessionOptions::default() });
        until(&small, "the refusal", |c| c.state().last_error.is_some()).await;
        assert_eq!(
            small.state().last_error.as_deref(),
            Some(
                "error parsing stream: a message of more than 1048576 bytes, the configured limit"
            )
        );
        assert!(!small.is_synchronized());
    });
}

/// A proxy in front of the server that makes it look older, by spoiling the names of the methods
/// given, and that hands on what the server says in portions of seven bytes.
async fn aging_proxy(server: &Server, methods: &'static [&'static str]) {
    let listener = tokio::net::UnixListener::bind(server.path("proxy.sock")).unwrap();
    let target = server.path("db.sock");
    tokio::task::spawn_local(async move {
        let (client, _) = listener.accept().await.unwrap();
        let server = tokio::net::UnixStream::connect(target).await.unwrap();
        let (mut from_client, mut to_client) = client.into_split();
        let (mut from_server, mut to_server) = server.into_split();
        tokio::task::spawn_local(async move {
            let mut chunk = [0; 65536];
            while let Ok(length @ 1..) = from_client.read(&mut chunk).await {
                let mut text = String::from_utf8(chunk[..length].to_vec()).unwrap();
                for method in methods {
                    text = text.replace(&format!("\"{method}\""), "\"method_of_the_future\"");
                }
                if to_server.write_all(text.as_bytes()).await.is_err() {
                    break;
                }
            }
        });
        let mut chunk = [0; 7];
        while let Ok(length @ 1..) = from_server.read(&mut chunk).await {
            if to_client.write_all(&chunk[..length]).await.is_err() {
                break;
            }
            tokio::task::yield_now().await;
        }
    });
}

#[test]
fn older_ways_to_monitor_work_with_the_real_server() {
    if !available() {
        return;
    }
    for methods in [&["monitor_cond_since"][..], &["monitor_cond_since", "monitor_cond"]] {
        let mut server = Server::new();
        server.start("db.sock");
        server.vsctl("init -- add-br br0 -- set bridge br0 other_config:a=1");
        on_runtime(async {
            aging_proxy(&server, methods).await;
            let remote = Remote::parse("unix:proxy.sock", server.directory.path()).unwrap();
            let client = Client::start(vec![remote], spec(), ClientOptions::default());
            until(&client, "the first copy", Client::is_synchronized).await;
            assert_eq!(changes(&client, "Bridge"), ["+br0"]);
            server.vsctl("set bridge br0 other_config:b=2 -- add-br br1");
            until(&client, "br1", |c| names(c, "Bridge").len() == 2).await;
            assert_eq!(changes(&client, "Bridge"), ["+br1", "~br0 other_config"]);
            server.vsctl("del-br br1 -- remove bridge br0 other_config a");
            until(&client, "no br1", |c| names(c, "Bridge").len() == 1).await;
            assert_eq!(changes(&client, "Bridge"), ["-br1", "~br0 other_config"]);
            let replica = client.replica();
            let config: Vec<_> =
                replica.first("Bridge").unwrap().1.map("other_config").iter().collect();
            assert_eq!(config, [("b", "2")]);
        });
    }
}

/// Collects "LEVEL target message" of each event.
struct Collect(Arc<Mutex<Vec<String>>>);

impl<S: tracing::Subscriber> tracing_subscriber::Layer<S> for Collect {
    fn on_event(&self, event: &tracing::Event<'_>, _: tracing_subscriber::layer::Context<'_, S>) {
        struct Text(String);
        impl tracing::field::Visit for Text {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                if field.name() == "message" {
                    self.0 = format!("{value:?}");
                }
            }
        }
        let mut text = Text(String::new());
        event.record(&mut text);
        let meta = event.metadata();
        if *meta.level() <= tracing::Level::INFO {
            let line = format!("{} {} {}", meta.level(), meta.target(), text.0);
            self.0.lock().unwrap().push(line);
        }
    }
}

#[test]
fn the_log_has_ovs_words() {
    if !available() {
        return;
    }
    let mut server = Server::new();
    let lines = Arc::new(Mutex::new(Vec::new()));
    let subscriber = tracing_subscriber::registry().with(Collect(lines.clone()));
    let _guard = tracing::subscriber::set_default(subscriber);
    on_runtime(async {
        let client = server.client(SessionOptions::default());
        // The first pause, of a second, goes unmentioned; the next one does not.
        tokio::time::sleep(Duration::from_millis(1200)).await;
        server.start("db.sock");
        until(&client, "the first copy", Client::is_synchronized).await;
        server.stop();
        until(&client, "the end", |c| !c.state().connected).await;
    });
    let lines = lines.lock().unwrap().clone();
    let expected = [
        "connecting...",
        "connection attempt failed (No such file or directory)",
        "connecting...",
        "connection attempt failed (No such file or directory)",
        "waiting 2 seconds before reconnect",
        "connecting...",
        "connected",
        "connection closed by peer",
    ];
    let expected: Vec<String> =
        expected.iter().map(|text| format!("INFO reconnect unix:db.sock: {text}")).collect();
    assert_eq!(lines, expected);
}
