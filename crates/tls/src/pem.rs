//! Files in PEM form (RFC 7468).

use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

pub(crate) fn named(path: &Path, error: &dyn std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{}: {error}", path.display()))
}

/// An I/O error in the words of strerror(3), without the number that Rust adds.
fn words(error: &io::Error) -> String {
    let text = error.to_string();
    match text.rfind(" (os error ") {
        Some(end) if error.raw_os_error().is_some() => text.get(..end).unwrap_or(&text).to_owned(),
        _ => text,
    }
}

fn open(path: &Path) -> io::Result<BufReader<File>> {
    let file = File::open(path).map_err(|e| named(path, &words(&e)))?;
    Ok(BufReader::new(file))
}

/// The certificates in a file, at least one.
pub(crate) fn certificates(path: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let found: Result<Vec<_>, _> = rustls_pemfile::certs(&mut open(path)?).collect();
    match found {
        Ok(found) if found.is_empty() => Err(named(path, &"holds no PEM certificate")),
        Ok(found) => Ok(found),
        Err(error) => Err(named(path, &error)),
    }
}

pub(crate) fn private_key(path: &Path) -> io::Result<PrivateKeyDer<'static>> {
    rustls_pemfile::private_key(&mut open(path)?)
        .map_err(|e| named(path, &e))?
        .ok_or_else(|| named(path, &"holds no PEM private key"))
}

/// Writes the last certificate of a chain, the CA's, to a file that must not exist yet.
///
/// # Errors
/// The chain is empty, or the file exists or cannot be written.
pub fn save_ca(chain: &[CertificateDer<'_>], path: &Path) -> io::Result<()> {
    let ca = chain.last().ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidData, "the server shows no certificate")
    })?;
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o644)
        .open(path)
        .and_then(|mut file| file.write_all(pem(ca).as_bytes()))
        .map_err(|e| named(path, &format!("cannot save the CA certificate ({})", words(&e))))?;
    tracing::info!(target: "stream_ssl", "successfully bootstrapped CA cert to {}", path.display());
    Ok(())
}

fn pem(der: &[u8]) -> String {
    let mut text = "-----BEGIN CERTIFICATE-----\n".to_owned();
    for line in base64(der).as_bytes().chunks(64) {
        text.extend(line.iter().map(|b| char::from(*b)));
        text.push('\n');
    }
    text + "-----END CERTIFICATE-----\n"
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
    fn pem_reads_back() {
        for len in [1, 2, 3, 47, 48, 49, 200] {
            let der: Vec<u8> = (0..len).map(|n| (n * 37) as u8).collect();
            let text = pem(&der);
            let read = rustls_pemfile::certs(&mut text.as_bytes()).next().unwrap().unwrap();
            assert_eq!(read.as_ref(), der);
        }
    }
}
