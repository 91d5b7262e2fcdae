// SPDX-License-Identifier: Apache-2.0
//! Lists of cipher suites as OpenSSL has them (ciphers(1), "CIPHER LIST FORMAT"), for TLS 1.2.
//!
//! Words that name no suite of ours add and remove nothing, as in OpenSSL, where suites that are
//! not compiled in do the same: lists are written for programs with many more suites. All suites
//! here exchange keys by ECDHE and are authenticated encryption.

use rustls::CipherSuite;

/// Words that stand for every suite.
const EVERY: &[&str] =
    &["ALL", "DEFAULT", "HIGH", "FIPS", "TLSv1.2", "ECDHE", "EECDH", "kECDHE", "kEECDH"];

/// The highest security level (`@SECLEVEL=`) whose demands on suites all of ours meet, and whose
/// demands on keys are near what rustls asks for.
const MAX_SECURITY_LEVEL: u8 = 2;

struct Suite {
    id: CipherSuite,
    /// OpenSSL's name and the standard's.
    names: [&'static str; 2],
    bits: u16,
    /// Further words that stand for it.
    words: &'static [&'static str],
}

const ECDSA_AES256: &[&str] = &["ECDSA", "aECDSA", "AES", "AES256", "AESGCM"];
const ECDSA_AES128: &[&str] = &["ECDSA", "aECDSA", "AES", "AES128", "AESGCM"];
const ECDSA_CHACHA: &[&str] = &["ECDSA", "aECDSA", "CHACHA20"];
const RSA_AES256: &[&str] = &["aRSA", "AES", "AES256", "AESGCM"];
const RSA_AES128: &[&str] = &["aRSA", "AES", "AES128", "AESGCM"];
const RSA_CHACHA: &[&str] = &["aRSA", "CHACHA20"];

const SUITES: &[Suite] = &[
    Suite {
        id: CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
        names: ["ECDHE-ECDSA-AES256-GCM-SHA384", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"],
        bits: 256,
        words: ECDSA_AES256,
    },
    Suite {
        id: CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
        names: ["ECDHE-RSA-AES256-GCM-SHA384", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"],
        bits: 256,
        words: RSA_AES256,
    },
    Suite {
        id: CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        names: ["ECDHE-ECDSA-CHACHA20-POLY1305", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"],
        bits: 256,
        words: ECDSA_CHACHA,
    },
    Suite {
        id: CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
        names: ["ECDHE-RSA-CHACHA20-POLY1305", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"],
        bits: 256,
        words: RSA_CHACHA,
    },
    Suite {
        id: CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        names: ["ECDHE-ECDSA-AES128-GCM-SHA256", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"],
        bits: 128,
        words: ECDSA_AES128,
    },
    Suite {
        id: CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        names: ["ECDHE-RSA-AES128-GCM-SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"],
        bits: 128,
        words: RSA_AES128,
    },
];

impl Suite {
    fn is_meant_by(&self, word: &str) -> bool {
        let all = |word: &str| {
            EVERY.contains(&word) || self.names.contains(&word) || self.words.contains(&word)
        };
        word.split('+').all(all)
    }
}

/// The suites that a list leaves, the preferred one first.
///
/// # Errors
/// The part of the list that cannot be obeyed.
pub(crate) fn parse(list: &str) -> Result<Vec<CipherSuite>, String> {
    let mut active: Vec<&Suite> = Vec::new();
    let mut killed: Vec<CipherSuite> = Vec::new();
    for word in list.split([':', ',', ';', ' ']).filter(|w| !w.is_empty()) {
        if let Some(command) = word.strip_prefix('@') {
            order(command, &mut active)?;
        } else if let Some(word) = word.strip_prefix('!') {
            killed.extend(SUITES.iter().filter(|s| s.is_meant_by(word)).map(|s| s.id));
            active.retain(|s| !s.is_meant_by(word));
        } else if let Some(word) = word.strip_prefix('-') {
            active.retain(|s| !s.is_meant_by(word));
        } else if let Some(word) = word.strip_prefix('+') {
            active.sort_by_key(|s| s.is_meant_by(word)); // stable: the others stay in order
        } else {
            for suite in SUITES.iter().filter(|s| s.is_meant_by(word)) {
                if !killed.contains(&suite.id) && !active.iter().any(|s| s.id == suite.id) {
                    active.push(suite);
                }
            }
        }
    }
    if active.is_empty() {
        let names: Vec<&str> = SUITES.iter().map(|s| s.names[0]).collect();
        return Err(format!("leaves no cipher suite of those there are: {}", names.join(" ")));
    }
    Ok(active.iter().map(|s| s.id).collect())
}

fn order(command: &str, active: &mut [&Suite]) -> Result<(), String> {
    match command.strip_prefix("SECLEVEL=").map(str::parse::<u8>) {
        Some(Ok(0..=MAX_SECURITY_LEVEL)) => Ok(()),
        Some(_) => Err(format!("\"@{command}\": levels up to {MAX_SECURITY_LEVEL} are supported")),
        None if command == "STRENGTH" => {
            active.sort_by_key(|s| std::cmp::Reverse(s.bits));
            Ok(())
        }
        None => Err(format!("\"@{command}\" is not supported")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By OpenSSL's names without what all have.
    fn names(list: &str) -> String {
        let ids = match parse(list) {
            Ok(ids) => ids,
            Err(error) => return format!("error: {}", error.split(':').next().unwrap()),
        };
        let name = |id| SUITES.iter().find(|s| s.id == id).unwrap().names[0];
        let names: Vec<&str> = ids.into_iter().map(|id| &name(id)["ECDHE-".len()..]).collect();
        names.join(" ")
    }

    /// As `openssl ciphers -v LIST` lists them, where it has them.
    #[test]
    fn lists_mean_what_they_mean_to_openssl() {
        assert_eq!(parse("HIGH:!aNULL:!MD5").unwrap().len(), SUITES.len());
        assert_eq!(parse("DEFAULT:@SECLEVEL=2").unwrap().len(), SUITES.len());
        assert_eq!(names("AES128"), "ECDSA-AES128-GCM-SHA256 RSA-AES128-GCM-SHA256");
        assert_eq!(names("aRSA+AES128"), "RSA-AES128-GCM-SHA256");
        assert_eq!(
            names("HIGH:!ECDSA:+AES256"),
            "RSA-CHACHA20-POLY1305 RSA-AES128-GCM-SHA256 RSA-AES256-GCM-SHA384"
        );
        assert_eq!(
            names("ECDHE-RSA-AES128-GCM-SHA256,TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"),
            "RSA-AES128-GCM-SHA256 RSA-AES256-GCM-SHA384"
        );
        assert_eq!(
            names("aRSA+AES128:aRSA+AES256:@STRENGTH"),
            "RSA-AES256-GCM-SHA384 RSA-AES128-GCM-SHA256"
        );
        // Removed for good, and not for good.
        assert_eq!(names("!AES:ALL:!ECDSA"), "RSA-CHACHA20-POLY1305");
        assert_eq!(names("CHACHA20:-ECDSA:-aRSA:CHACHA20+aRSA"), "RSA-CHACHA20-POLY1305");
    }

    #[test]
    fn what_cannot_be_obeyed_is_an_error() {
        for none in ["", "RC4-SHA", "AES256-SHA:kRSA", "ALL:!ALL", "!HIGH:HIGH", "AES128+AES256"] {
            assert_eq!(names(none), "error: leaves no cipher suite of those there are", "{none}");
        }
        assert!(names("HIGH:@SECLEVEL=5").starts_with("error"));
        assert!(names("HIGH:@SECLEVEL=x").starts_with("error"));
        assert!(names("HIGH:@NONSENSE").starts_with("error"));
    }

    #[test]
    fn all_suites_of_tls_1_2_are_known() {
        let provider = rustls::crypto::ring::default_provider();
        for suite in provider.cipher_suites.iter().filter(|s| s.tls13().is_none()) {
            assert!(SUITES.iter().any(|s| s.id == suite.suite()), "{suite:?}");
        }
    }
}
