// SPDX-License-Identifier: Apache-2.0
//! The check of the certificate that a peer shows to an active connection.

use crate::{roots, save_ca};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use std::path::PathBuf;
use std::sync::Arc;

/// The certificate authorities that a peer's certificate may be signed by.
#[derive(Debug)]
pub(crate) enum Trust {
    /// A CA in this file; with `bootstrap` a missing file is made, and the handshake fails.
    File { ca: PathBuf, bootstrap: bool },
    /// The last certificate of the chain that the peer shows.
    Shown,
}

/// Checks that the chain leads to a trusted CA, and nothing about names.
#[derive(Debug)]
pub(crate) struct ChainVerifier {
    pub trust: Trust,
    pub provider: Arc<CryptoProvider>,
}

fn shown(chain: &[CertificateDer<'_>]) -> Result<RootCertStore, Error> {
    let ca = chain.last().ok_or_else(|| {
        Error::General("the server shows no CA certificate to bootstrap from".to_owned())
    })?;
    let mut roots = RootCertStore::empty();
    roots.add(ca.clone().into_owned())?;
    Ok(roots)
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
        let general = |error: std::io::Error| Error::General(error.to_string());
        let (roots, save) = match &self.trust {
            Trust::File { ca, bootstrap: true } if !ca.exists() => {
                (shown(intermediates)?, Some(ca))
            }
            Trust::File { ca, .. } => (roots(ca).map_err(general)?, None),
            Trust::Shown => (shown(intermediates)?, None),
        };
        verify_server_cert_signed_by_trust_anchor(
            &ParsedCertificate::try_from(end)?,
            &roots,
            intermediates,
            now,
            self.provider.signature_verification_algorithms.all,
        )?;
        if let Some(ca) = save {
            save_ca(intermediates, ca).map_err(general)?;
            let text = "CA certificate saved; connecting again to verify it";
            return Err(Error::General(text.to_owned()));
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
