//! TLS to the database server, with OVS's rules.
//!
//! Both sides show a certificate; each must be signed by the configured CA. The name in the
//! server's certificate is not compared with the host connected to: the certificates that
//! ovs-pki(8) makes carry no host names, and a private CA signs for this purpose only.
//!
//! With `bootstrap`, and while the CA file does not exist, the first connection takes the CA
//! certificate from the chain that the server shows, provided that the server's certificate is
//! signed by it, writes it to the file, and ends; the next connection checks against the file
//! (ovs-vswitchd(8), `--bootstrap-ca-cert`). That first connection is open to a man in the middle;
//! nothing is sent on it.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// The files that TLS needs, all in PEM form. They are read anew for each connection, so that
/// renewed certificates need no restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsOptions {
    /// This program's private key.
    pub private_key: PathBuf,
    /// This program's certificate.
    pub certificate: PathBuf,
    /// The CA that signs servers' certificates.
    pub ca_certificate: PathBuf,
    /// Take the CA from the first connection if the file does not exist.
    pub bootstrap: bool,
}

/// Makes a TLS connection on `stream`.
pub(crate) async fn connect(
    stream: TcpStream,
    host: &str,
    options: &TlsOptions,
) -> io::Result<TlsStream<TcpStream>> {
    let bootstrapping = options.bootstrap && !options.ca_certificate.exists();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = ChainVerifier { roots: RootCertStore::empty(), provider: provider.clone() };
    let verifier: Arc<dyn ServerCertVerifier> = if bootstrapping {
        Arc::new(BootstrapVerifier(verifier))
    } else {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&options.ca_certificate)? {
            roots.add(certificate).map_err(|e| named(&options.ca_certificate, &e))?;
        }
        Arc::new(ChainVerifier { roots, ..verifier })
    };
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_client_auth_cert(
            certificates(&options.certificate)?,
            private_key(&options.private_key)?,
        )
        .map_err(|e| named(&options.certificate, &e))?;
    // An address with a zone ("fe80::1%eth0") is no name that TLS knows.
    let name = host.split('%').next().unwrap_or(host).to_owned();
    let name = ServerName::try_from(name).map_err(io::Error::other)?;
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    if bootstrapping {
        let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
        save_ca(chain, &options.ca_certificate)?;
        return Err(io::Error::other("CA certificate saved; connecting again to verify it"));
    }
    Ok(stream)
}

fn named(path: &Path, error: &dyn std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{}: {error}", path.display()))
}

fn open(path: &Path) -> io::Result<BufReader<File>> {
    let file = File::open(path).map_err(|e| named(path, &crate::remote::error_words(&e)))?;
    Ok(BufReader::new(file))
}

fn certificates(path: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let found: Result<Vec<_>, _> = rustls_pemfile::certs(&mut open(path)?).collect();
    match found {
        Ok(found) if found.is_empty() => Err(named(path, &"holds no PEM certificate")),
        Ok(found) => Ok(found),
        Err(error) => Err(named(path, &error)),
    }
}

fn private_key(path: &Path) -> io::Result<PrivateKeyDer<'static>> {
    rustls_pemfile::private_key(&mut open(path)?)
        .map_err(|e| named(path, &e))?
        .ok_or_else(|| named(path, &"holds no PEM private key"))
}

/// Checks that the chain leads to one of the roots, and nothing about names.
#[derive(Debug)]
struct ChainVerifier {
    roots: RootCertStore,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for ChainVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let algorithms = self.provider.signature_verification_algorithms.all;
        let certificate = ParsedCertificate::try_from(end_entity)?;
        verify_server_cert_signed_by_trust_anchor(
            &certificate,
            &self.roots,
            intermediates,
            now,
            algorithms,
        )?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Takes the last certificate of the shown chain for the CA, and checks the chain against that.
#[derive(Debug)]
struct BootstrapVerifier(ChainVerifier);

impl ServerCertVerifier for BootstrapVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let ca = intermediates.last().ok_or_else(|| {
            rustls::Error::General("the server shows no CA certificate to bootstrap from".into())
        })?;
        let mut roots = RootCertStore::empty();
        roots.add(ca.clone().into_owned())?;
        let verifier = ChainVerifier { roots, provider: self.0.provider.clone() };
        verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// Writes the last certificate of a chain to a file that must not exist yet.
fn save_ca(chain: &[CertificateDer<'_>], path: &Path) -> io::Result<()> {
    let ca = chain.last().ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidData, "the server shows no certificate")
    })?;
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(path)
        .map_err(|e| named(path, &crate::remote::error_words(&e)))?;
    file.write_all(pem(ca).as_bytes())?;
    tracing::info!(target: "stream_ssl", "successfully bootstrapped CA cert to {}", path.display());
    Ok(())
}

/// A certificate in PEM form (RFC 7468).
fn pem(der: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut digits = String::new();
    for group in der.chunks(3) {
        let bits = group.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte))
            << (8 * (3 - group.len()));
        for place in 0..4 {
            digits.push(if place <= group.len() {
                let digit = bits >> (18 - 6 * place) & 63;
                char::from(DIGITS[digit as usize])
            } else {
                '='
            });
        }
    }
    let mut text = "-----BEGIN CERTIFICATE-----\n".to_owned();
    for line in digits.as_bytes().chunks(64) {
        text.push_str(&String::from_utf8_lossy(line));
        text.push('\n');
    }
    text + "-----END CERTIFICATE-----\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pem_reads_back() {
        for len in [1, 2, 3, 47, 48, 49, 200] {
            let der: Vec<u8> = (0..len).map(|n| (n * 37) as u8).collect();
            let text = pem(&der);
            let read = rustls_pemfile::certs(&mut text.as_bytes()).next().unwrap().unwrap();
            assert_eq!(read.as_ref(), der);
        }
    }
}
