//! TLS for OpenFlow connections, with OVS's rules.
//!
//! Both sides show a certificate, and each must be signed by the configured CA. Names in
//! certificates are not compared with hosts: those that ovs-pki(8) makes carry none, and a
//! private CA signs for this purpose only. The CA file is read anew for each connection; with
//! `bootstrap`, and while it does not exist, an active connection takes the CA certificate from
//! the chain that the peer shows (provided that it signed the peer's), writes the file and
//! fails; the next attempt checks against the file.

use super::wanted::Tls;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, ServerConfig,
    SignatureScheme,
};
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// Makes what active connections need. The error names the file that is the trouble.
pub(super) fn connector(files: &Tls) -> io::Result<TlsConnector> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = ChainVerifier {
        ca: PathBuf::from(&files.ca_cert),
        bootstrap: files.bootstrap,
        provider: Arc::clone(&provider),
    };
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .dangerous() // names are not compared, see the module's text
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_client_auth_cert(
            certificates(Path::new(&files.certificate))?,
            key(Path::new(&files.private_key))?,
        )
        .map_err(|e| named(Path::new(&files.certificate), &e))?;
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Makes what passive connections need; see [`connector`].
pub(super) fn acceptor(files: &Tls) -> io::Result<TlsAcceptor> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let ca = Path::new(&files.ca_cert);
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots(ca)?), Arc::clone(&provider))
            .build()
            .map_err(|e| named(ca, &e))?;
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_client_cert_verifier(verifier)
        .with_single_cert(
            certificates(Path::new(&files.certificate))?,
            key(Path::new(&files.private_key))?,
        )
        .map_err(|e| named(Path::new(&files.certificate), &e))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn named(path: &Path, error: &dyn std::fmt::Display) -> io::Error {
    io::Error::other(format!("{}: {error}", path.display()))
}

fn open(path: &Path) -> io::Result<BufReader<File>> {
    File::open(path)
        .map(BufReader::new)
        .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))
}

fn certificates(path: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let found: Vec<_> = rustls_pemfile::certs(&mut open(path)?)
        .collect::<Result<_, _>>()
        .map_err(|e| named(path, &e))?;
    if found.is_empty() {
        Err(named(path, &"no certificate in PEM form is in this file"))
    } else {
        Ok(found)
    }
}

fn key(path: &Path) -> io::Result<PrivateKeyDer<'static>> {
    rustls_pemfile::private_key(&mut open(path)?)
        .map_err(|e| named(path, &e))?
        .ok_or_else(|| named(path, &"no private key in PEM form is in this file"))
}

fn roots(ca: &Path) -> io::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(ca)? {
        roots.add(certificate).map_err(|e| named(ca, &e))?;
    }
    Ok(roots)
}

/// Checks that a peer's certificate is signed by the CA, and nothing else.
#[derive(Debug)]
struct ChainVerifier {
    ca: PathBuf,
    bootstrap: bool,
    provider: Arc<CryptoProvider>,
}

impl ChainVerifier {
    fn check(
        &self,
        end: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        roots: &RootCertStore,
        now: UnixTime,
    ) -> Result<(), Error> {
        let algorithms = self.provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(
            &ParsedCertificate::try_from(end)?,
            roots,
            intermediates,
            now,
            algorithms,
        )
    }

    /// Takes the last certificate of the chain for the CA's, when it signed `end`.
    fn adopt(
        &self,
        end: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<Error, Error> {
        let general = |text: String| Error::General(text);
        let ca = chain.last().ok_or_else(|| {
            general("the peer sent no CA certificate, so that none can be taken over (bootstrap_ca_cert)".to_owned())
        })?;
        let mut roots = RootCertStore::empty();
        roots.add(ca.clone().into_owned())?;
        self.check(end, chain, &roots, now)?;
        let mut text = String::from("-----BEGIN CERTIFICATE-----\n");
        for line in base64(ca).as_bytes().chunks(64) {
            text.extend(line.iter().map(|b| char::from(*b)));
            text.push('\n');
        }
        text.push_str("-----END CERTIFICATE-----\n");
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o644)
            .open(&self.ca)
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .map_err(|e| {
                general(format!("{}: cannot save the CA certificate ({e})", self.ca.display()))
            })?;
        tracing::info!(target: "stream_ssl", "successfully bootstrapped CA cert to {}", self.ca.display());
        Ok(general("CA certificate saved; connecting again to verify it".to_owned()))
    }
}

impl ServerCertVerifier for ChainVerifier {
    fn verify_server_cert(
        &self,
        end: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.bootstrap && !self.ca.exists() {
            return Err(self.adopt(end, intermediates, now)?);
        }
        let roots = roots(&self.ca).map_err(|e| Error::General(e.to_string()))?;
        if roots.is_empty() {
            return Err(CertificateError::UnknownIssuer.into());
        }
        self.check(end, intermediates, &roots, now)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(
            message,
            certificate,
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(
            message,
            certificate,
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// RFC 4648 section 4.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: [u8; 64] = *b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let at = |i: usize| u32::from(chunk.get(i).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for i in 0..4 {
            if i <= chunk.len() {
                let digit = bits >> (18 - 6 * i) & 63;
                out.push(char::from(DIGITS.get(digit as usize).copied().unwrap_or(b'=')));
            } else {
                out.push('=');
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_as_in_the_rfc() {
        for (plain, coded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
        ] {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
    }

    #[test]
    fn a_missing_file_is_named() {
        let files = Tls {
            private_key: "/nonexistent/key".to_owned(),
            certificate: "/nonexistent/cert".to_owned(),
            ca_cert: "/nonexistent/ca".to_owned(),
            bootstrap: false,
        };
        let error = connector(&files).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(error.starts_with("/nonexistent/cert: "), "{error}");
        assert!(
            acceptor(&files).err().is_some_and(|e| e.to_string().starts_with("/nonexistent/ca: "))
        );
    }
}
