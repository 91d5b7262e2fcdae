// SPDX-License-Identifier: Apache-2.0
//! TLS to the database server. The files are read again for each connection, so that renewed
//! certificates need no restart.

use ::tls::Files;
use std::io;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;

/// Makes a TLS connection on `stream`.
pub(crate) async fn connect(
    stream: TcpStream,
    host: &str,
    files: &Files,
) -> io::Result<TlsStream<TcpStream>> {
    let ca = &files.ca_certificate;
    let bootstrapping = files.bootstrap && !ca.exists();
    let connector = if bootstrapping {
        tls::bootstrap_connector(files)?
    } else {
        tls::check_ca(ca)?;
        tls::connector(&Files { bootstrap: false, ..files.clone() })?
    };
    // An address with a zone ("fe80::1%eth0") is no name that TLS knows.
    let name = host.split('%').next().unwrap_or(host).to_owned();
    let name = files.policy.server_name(ServerName::try_from(name).map_err(io::Error::other)?);
    let stream = connector.connect(name, stream).await?;
    if bootstrapping {
        let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
        tls::save_ca(chain, ca)?;
        return Err(io::Error::other("CA certificate saved; connecting again to verify it"));
    }
    Ok(stream)
}
