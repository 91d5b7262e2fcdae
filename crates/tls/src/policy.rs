// SPDX-License-Identifier: Apache-2.0
//! The protocols and ciphers that a connection may use (`--ssl-protocols`, `--ssl-ciphers`).

use crate::ciphers;
use rustls::crypto::CryptoProvider;
use rustls::version::{TLS12, TLS13};
use rustls::{CipherSuite, SupportedProtocolVersion};

/// Versions that OpenSSL knows and that are not spoken here.
const TOO_OLD: &[&str] = &["SSLv2", "SSLv3", "TLSv1", "TLSv1.0", "TLSv1.1"];

/// The versions and cipher suites that connections may use; by default all there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// `None`: all versions.
    versions: Option<Versions>,
    /// Suites of TLS 1.2 in the order of preference; `None`: all. Those of TLS 1.3 are not chosen,
    /// as OpenSSL's cipher lists do not choose them either.
    suites: Option<Vec<CipherSuite>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Versions {
    tls12: bool,
    tls13: bool,
}

impl Policy {
    /// Allows just the versions in a list with commas or blanks: `TLSv1.2`, `TLSv1.3`. Returns
    /// those in the list that are too old to be spoken.
    ///
    /// # Errors
    /// A word that is no version, or no version is left.
    pub fn set_versions(&mut self, list: &str) -> Result<Vec<String>, String> {
        let mut versions = Versions::default();
        let mut too_old = Vec::new();
        for word in list.split([',', ' ', '\t']).filter(|w| !w.is_empty()) {
            match word {
                "TLSv1.2" => versions.tls12 = true,
                "TLSv1.3" => versions.tls13 = true,
                old if TOO_OLD.contains(&old) => too_old.push(old.to_owned()),
                other => {
                    return Err(format!("\"{other}\" is no version; use TLSv1.2 and TLSv1.3"));
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

    pub(crate) fn versions(&self) -> Vec<&'static SupportedProtocolVersion> {
        let allowed = self.versions.unwrap_or(Versions { tls12: true, tls13: true });
        let all = [(allowed.tls13, &TLS13), (allowed.tls12, &TLS12)];
        all.into_iter().filter(|(yes, _)| *yes).map(|(_, version)| version).collect()
    }

    pub(crate) fn provider(&self) -> CryptoProvider {
        let mut provider = rustls::crypto::ring::default_provider();
        if let Some(suites) = &self.suites {
            let place = |suite: &rustls::SupportedCipherSuite| {
                suites.iter().position(|id| *id == suite.suite())
            };
            provider.cipher_suites.retain(|s| s.tls13().is_some() || place(s).is_some());
            // Those of TLS 1.3 first: `None` is less.
            provider.cipher_suites.sort_by_key(place);
        }
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
        for bad in ["", "TLSv1", "TLSv1.1,SSLv3", "TLSv1.2,tls13", "nonsense"] {
            assert!(versions(bad).is_err(), "{bad}");
        }
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
