// SPDX-License-Identifier: Apache-2.0
//! The protocols and ciphers that a connection may use (`--ssl-protocols`, `--ssl-ciphers`,
//! `--ssl-ciphersuites`), and the name that it asks a server for (`--ssl-server-name`).

use crate::ciphers;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::ServerName;
use rustls::version::{TLS12, TLS13};
use rustls::{CipherSuite, SupportedProtocolVersion};

/// Versions that OpenSSL knows, in their order. The last two are spoken here.
const ALL: &[&str] = &["SSLv2", "SSLv3", "TLSv1", "TLSv1.0", "TLSv1.1", "TLSv1.2", "TLSv1.3"];

/// The suites of TLS 1.3, by the standard's names.
const SUITES13: &[(&str, CipherSuite)] = &[
    ("TLS_AES_256_GCM_SHA384", CipherSuite::TLS13_AES_256_GCM_SHA384),
    ("TLS_AES_128_GCM_SHA256", CipherSuite::TLS13_AES_128_GCM_SHA256),
    ("TLS_CHACHA20_POLY1305_SHA256", CipherSuite::TLS13_CHACHA20_POLY1305_SHA256),
];

/// Place of a version in [`ALL`].
fn place(version: &str) -> Option<usize> {
    ALL.iter().position(|known| *known == version)
}

/// The versions and cipher suites that connections may use; by default all there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// `None`: all versions.
    versions: Option<Versions>,
    /// Suites of TLS 1.2 in the order of preference; `None`: all. OpenSSL's cipher lists do not
    /// choose those of TLS 1.3.
    suites: Option<Vec<CipherSuite>>,
    /// Suites of TLS 1.3 in the order of preference; `None`: all.
    suites13: Option<Vec<CipherSuite>>,
    /// Name that a client sends to a server (SNI); `None`: the host's own.
    server_name: Option<ServerName<'static>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Versions {
    tls12: bool,
    tls13: bool,
}

impl Policy {
    /// Allows just the versions in a list with commas or blanks: `TLSv1.2`, `TLSv1.3`, or a range
    /// of them, `TLSv1.2+` or `TLSv1.2-TLSv1.3`. Returns those in the list that are too old to be
    /// spoken.
    ///
    /// # Errors
    /// A word that is no version, or no version is left.
    pub fn set_versions(&mut self, list: &str) -> Result<Vec<String>, String> {
        let mut versions = Versions::default();
        let mut too_old = Vec::new();
        for word in list.split([',', ' ', '\t']).filter(|w| !w.is_empty()) {
            let bad = || format!("\"{word}\" is no version; use TLSv1.2 and TLSv1.3");
            let (first, last) = match (word.strip_suffix('+'), word.split_once('-')) {
                (Some(first), _) => (first, "TLSv1.3"),
                (None, Some((first, last))) => (first, last),
                (None, None) => (word, word),
            };
            let (first, last) = (place(first).ok_or_else(bad)?, place(last).ok_or_else(bad)?);
            if first > last {
                return Err(bad());
            }
            for version in first..=last {
                match ALL.get(version) {
                    Some(&"TLSv1.2") => versions.tls12 = true,
                    Some(&"TLSv1.3") => versions.tls13 = true,
                    // A range reaches from a version that is too old to those that are not.
                    Some(_) if first != last => {}
                    _ => too_old.push(word.to_owned()),
                }
            }
        }
        if versions == Versions::default() {
            return Err("names no version that is supported: use TLSv1.2 and TLSv1.3".to_owned());
        }
        self.versions = Some(versions);
        Ok(too_old)
    }

    /// Allows just the suites of TLS 1.2 that OpenSSL's kind of list leaves (ciphers(1)).
    ///
    /// # Errors
    /// The part of the list that cannot be obeyed.
    pub fn set_ciphers(&mut self, list: &str) -> Result<(), String> {
        self.suites = Some(ciphers::parse(list)?);
        Ok(())
    }

    /// Allows just the suites of TLS 1.3 in a list with colons, in this order.
    ///
    /// # Errors
    /// A name of no suite of TLS 1.3 that is supported, or no name.
    pub fn set_ciphersuites(&mut self, list: &str) -> Result<(), String> {
        let mut suites = Vec::new();
        for name in list.split([':', ',', ' ']).filter(|name| !name.is_empty()) {
            let suite = SUITES13.iter().find(|(known, _)| *known == name);
            let (_, suite) = suite.ok_or_else(|| format!("\"{name}\" is no suite of TLS 1.3"))?;
            suites.push(*suite);
        }
        if suites.is_empty() {
            return Err("names no suite of TLS 1.3".to_owned());
        }
        self.suites13 = Some(suites);
        Ok(())
    }

    /// Sets the name that clients send to servers.
    ///
    /// # Errors
    /// The text is no name of a host, and no address.
    pub fn set_server_name(&mut self, name: &str) -> Result<(), String> {
        let parsed = ServerName::try_from(name.to_owned());
        self.server_name = Some(parsed.map_err(|_| format!("\"{name}\" is no name of a host"))?);
        Ok(())
    }

    /// Returns the name that a client sends to a server that it has reached as `host`.
    pub fn server_name(&self, host: ServerName<'static>) -> ServerName<'static> {
        self.server_name.clone().unwrap_or(host)
    }

    pub(crate) fn versions(&self) -> Vec<&'static SupportedProtocolVersion> {
        let allowed = self.versions.unwrap_or(Versions { tls12: true, tls13: true });
        let all = [(allowed.tls13, &TLS13), (allowed.tls12, &TLS12)];
        all.into_iter().filter(|(yes, _)| *yes).map(|(_, version)| version).collect()
    }

    pub(crate) fn provider(&self) -> CryptoProvider {
        let mut provider = rustls::crypto::ring::default_provider();
        let place = |suite: &rustls::SupportedCipherSuite| {
            let is_old = suite.tls13().is_none();
            match if is_old { &self.suites } else { &self.suites13 } {
                Some(wanted) => wanted.iter().position(|id| *id == suite.suite()),
                None => Some(0), // all, in the order in which they are
            }
            .map(|place| (is_old, place)) // those of TLS 1.3 first
        };
        provider.cipher_suites.retain(|suite| place(suite).is_some());
        provider.cipher_suites.sort_by_key(place);
        provider
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn versions(list: &str) -> Result<(usize, Vec<String>), String> {
        let mut policy = Policy::default();
        let old = policy.set_versions(list)?;
        Ok((policy.versions().len(), old))
    }

    #[test]
    fn versions_are_those_in_the_list() {
        assert_eq!(Policy::default().versions(), [&TLS13, &TLS12]);
        assert_eq!(versions("TLSv1.2"), Ok((1, vec![])));
        assert_eq!(versions("TLSv1.3, TLSv1.2"), Ok((2, vec![])));
        assert_eq!(
            versions("TLSv1,TLSv1.1,TLSv1.2"),
            Ok((1, vec!["TLSv1".to_owned(), "TLSv1.1".to_owned()]))
        );
        let mut only = Policy::default();
        only.set_versions("TLSv1.3").unwrap();
        assert_eq!(only.versions(), [&TLS13]);
        assert_eq!(versions("TLSv1.2+"), Ok((2, vec![])));
        assert_eq!(versions("TLSv1.3+"), Ok((1, vec![])));
        assert_eq!(versions("TLSv1+"), Ok((2, vec![])));
        assert_eq!(versions("TLSv1.2-TLSv1.3"), Ok((2, vec![])));
        assert_eq!(versions("TLSv1.1-TLSv1.2"), Ok((1, vec![])));
        for bad in [
            "",
            "TLSv1",
            "TLSv1.1,SSLv3",
            "TLSv1.2,tls13",
            "nonsense",
            "+",
            "-",
            "TLSv1.3-TLSv1.2",
            "TLSv1-TLSv1.1",
            "TLSv1.2-",
            "TLSv1.2++",
        ] {
            assert!(versions(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn suites_of_tls_1_3_have_a_list_of_their_own() {
        let mut policy = Policy::default();
        let list = "TLS_CHACHA20_POLY1305_SHA256:TLS_AES_128_GCM_SHA256";
        assert_eq!(policy.set_ciphersuites(list), Ok(()));
        let suites: Vec<CipherSuite> =
            policy.provider().cipher_suites.iter().map(|suite| suite.suite()).collect();
        assert_eq!(
            suites.get(..2),
            Some(
                &[
                    CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
                    CipherSuite::TLS13_AES_128_GCM_SHA256
                ][..]
            )
        );
        let all = Policy::default().provider().cipher_suites.len();
        assert_eq!(suites.len(), all - 1, "those of TLS 1.2 stay");
        for bad in ["", ":", "TLS_AES_128_CCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"] {
            assert!(policy.set_ciphersuites(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_name_stands_in_for_the_host() {
        let host = || ServerName::try_from("192.0.2.1").unwrap();
        let mut policy = Policy::default();
        assert_eq!(policy.server_name(host()), host());
        assert_eq!(policy.set_server_name("controller.example"), Ok(()));
        let name = policy.server_name(host());
        assert_eq!(name, ServerName::try_from("controller.example").unwrap());
        assert!(policy.set_server_name("no name").is_err());
    }

    #[test]
    fn suites_keep_the_order_of_the_list() {
        let mut policy = Policy::default();
        policy.set_ciphers("aRSA+AES128:aRSA+AES256").unwrap();
        let provider = policy.provider();
        let (new, old): (Vec<rustls::SupportedCipherSuite>, Vec<_>) =
            provider.cipher_suites.iter().copied().partition(|s| s.tls13().is_some());
        assert_eq!(new.len(), 3);
        assert_eq!(
            old.iter().map(rustls::SupportedCipherSuite::suite).collect::<Vec<_>>(),
            [
                CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
                CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384
            ]
        );
        assert!(provider.cipher_suites.first().is_some_and(|s| s.tls13().is_some()));
    }
}
