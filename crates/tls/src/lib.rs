// SPDX-License-Identifier: Apache-2.0
//! TLS with OVS's rules, for OpenFlow and for OVSDB.
//!
//! Both sides show a certificate; each must be signed by the configured CA. The name in a
//! server's certificate is not compared with the host connected to: the certificates that
//! ovs-pki(8) makes carry no host names, and a private CA signs for this purpose only.
//!
//! With `bootstrap`, and while the CA file does not exist, the first active connection takes the
//! CA certificate from the chain that the peer shows, provided that the peer's certificate is
//! signed by it, writes it to the file, and ends; the next connection checks against the file
//! (ovs-vswitchd(8), `--bootstrap-ca-cert`). That first connection is open to a man in the middle;
//! nothing may be sent on it. There are two ways to it:
//! - A [`connector`] that is kept does all of it by itself, in the handshake, which it then fails.
//! - A [`bootstrap_connector`] finishes the handshake, and [`save_ca`] writes the file after.
//!
//! Guarantees:
//! - A connector reads the CA file in each handshake, so that a renewed CA needs no new connector.
//!   The key and the certificate, and all files of an acceptor, are read when it is made. A caller
//!   that makes one for each connection uses renewed files without further action.
//! - Errors name the faulty file, and reveal nothing of the contents of a private key.
//! - A private key that every user of the host can read is used, and said to be so in the log.
//! - Peers are always verified; there is no way to connect without a CA.

#![forbid(unsafe_code)]

mod ciphers;
mod pem;
mod policy;
mod verifier;

use pem::{certificates, named, private_key};
use rustls::pki_types::CertificateDer;
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_rustls::{TlsAcceptor, TlsConnector};
use verifier::{ChainVerifier, Trust};

pub use pem::save_ca;
pub use policy::Policy;

/// The files that TLS needs, all in PEM form, and what connections may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// This program's private key.
    pub private_key: PathBuf,
    /// This program's certificate.
    pub certificate: PathBuf,
    /// The CA that signs peers' certificates.
    pub ca_certificate: PathBuf,
    /// Take the CA from the first active connection if its file does not exist.
    pub bootstrap: bool,
    /// Certificates to show to peers after this program's own: of the CA that signed it, from
    /// which peers can bootstrap.
    pub peer_ca_certificate: Option<PathBuf>,
    /// Versions and cipher suites.
    pub policy: Policy,
}

impl Files {
    /// This program's certificate and those to show with it.
    fn chain(&self) -> io::Result<Vec<CertificateDer<'static>>> {
        let mut chain = certificates(&self.certificate)?;
        if let Some(path) = &self.peer_ca_certificate {
            chain.extend(certificates(path)?);
        }
        Ok(chain)
    }
}

/// Makes what active connections need.
///
/// # Errors
/// The key or the certificate cannot be read or used. Trouble with the CA file fails handshakes
/// instead; to have it said before, call [`check_ca`].
pub fn connector(files: &Files) -> io::Result<TlsConnector> {
    let ca = files.ca_certificate.clone();
    connector_that_trusts(Trust::File { ca, bootstrap: files.bootstrap }, files)
}

/// Makes a connector for a connection whose only purpose is to read the CA certificate; [`save_ca`]
/// takes it from the chain that the peer has shown. The CA file is not looked at.
///
/// # Errors
/// As [`connector`].
pub fn bootstrap_connector(files: &Files) -> io::Result<TlsConnector> {
    connector_that_trusts(Trust::Shown, files)
}

fn connector_that_trusts(trust: Trust, files: &Files) -> io::Result<TlsConnector> {
    let provider = Arc::new(files.policy.provider());
    let verifier = ChainVerifier { trust, provider: Arc::clone(&provider) };
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&files.policy.versions())
        .map_err(io::Error::other)?
        .dangerous() // names are not compared, see the crate's text
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_client_auth_cert(files.chain()?, private_key(&files.private_key)?)
        .map_err(|e| named(&files.certificate, &e))?;
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Makes what passive connections need. `bootstrap` means nothing to them.
///
/// # Errors
/// A file cannot be read or used.
pub fn acceptor(files: &Files) -> io::Result<TlsAcceptor> {
    let provider = Arc::new(files.policy.provider());
    let ca = &files.ca_certificate;
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots(ca)?), Arc::clone(&provider))
            .build()
            .map_err(|e| named(ca, &e))?;
    let config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&files.policy.versions())
        .map_err(io::Error::other)?
        .with_client_cert_verifier(verifier)
        .with_single_cert(files.chain()?, private_key(&files.private_key)?)
        .map_err(|e| named(&files.certificate, &e))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Checks that a file holds CA certificates.
///
/// # Errors
/// It cannot be read, or holds none, or one that is of no use.
pub fn check_ca(path: &Path) -> io::Result<()> {
    roots(path).map(drop)
}

/// The CA's certificates, at least one.
fn roots(ca: &Path) -> io::Result<RootCertStore> {
    if ca.as_os_str().is_empty() {
        return Err(io::Error::other(
            "no CA certificate is configured, and peers that are not verified are not supported",
        ));
    }
    let mut roots = RootCertStore::empty();
    for certificate in certificates(ca)? {
        roots.add(certificate).map_err(|e| named(ca, &e))?;
    }
    Ok(roots)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_file_is_named() {
        let files = Files {
            private_key: "/nonexistent/key".into(),
            certificate: "/nonexistent/cert".into(),
            ca_certificate: "/nonexistent/ca".into(),
            bootstrap: false,
            peer_ca_certificate: None,
            policy: Policy::default(),
        };
        let error = connector(&files).err().map(|e| e.to_string()).unwrap_or_default();
        assert_eq!(error, "/nonexistent/cert: No such file or directory");
        assert!(
            acceptor(&files).err().is_some_and(|e| e.to_string().starts_with("/nonexistent/ca: "))
        );
    }

    #[test]
    fn without_a_ca_nobody_is_trusted() {
        let error = check_ca(Path::new("")).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(error.starts_with("no CA certificate is configured"), "{error}");
    }
}
