// SPDX-License-Identifier: Apache-2.0
//! Files in PEM form (RFC 7468).

use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, BufReader, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

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
    let mut file = open(path)?;
    if file.get_ref().metadata().is_ok_and(|m| m.mode() & 0o007 != 0) {
        warn_once(path);
    }
    match rustls_pemfile::private_key(&mut file) {
        Ok(Some(key)) => Ok(key),
        Ok(None) => Err(named(path, &"holds no PEM private key")),
        Err(error) if error.raw_os_error().is_some() => Err(named(path, &words(&error))),
        // The parser's words may be words of the key.
        Err(_) => Err(named(path, &"holds a private key that is damaged")),
    }
}

/// Warns that a private key is readable by others, once for each file. Keys are read again for each
/// connection.
fn warn_once(path: &Path) {
    static SAID: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    if SAID.lock().unwrap_or_else(PoisonError::into_inner).insert(path.to_owned()) {
        tracing::warn!(target: "stream_ssl", "{}: all users of this host have access to the private key (chmod o= {0})", path.display());
    }
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
        .and_then(|mut file| {
            file.set_permissions(Permissions::from_mode(0o644))?; // public, whatever the umask
            file.write_all(pem(ca).as_bytes())
        })
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
    fn a_damaged_key_is_not_quoted() {
        let dir = testing::directory();
        let path = dir.path().join("key.pem");
        for text in [
            "-----BEGIN SECRET",
            "-----BEGIN PRIVATE KEY-----\nSECRET",
            "-----BEGIN PRIVATE KEY-----\nSECRET!?\n-----END PRIVATE KEY-----\n",
            "SECRET",
        ] {
            std::fs::write(&path, text).unwrap();
            let error = private_key(&path).err().map(|e| e.to_string()).unwrap_or_default();
            assert!(error.starts_with(&format!("{}: holds ", path.display())), "{error}");
            assert!(!error.contains("SECRET"), "{error}");
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
