//! TLS of a client: the authorities that it trusts, and the certificate that it shows. Kubernetes and OpenStack are reached with the same code.

mod any_server;

use std::error::Error;
use std::sync::Arc;

use hyper_rustls::ConfigBuilderExt;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use any_server::AnyServer;

/// Who may have signed a server's certificate.
#[derive(Debug)]
pub enum Authorities {
    /// These, and no other.
    Named(Vec<CertificateDer<'static>>),
    /// Those that the machine trusts.
    OfTheSystem,
    /// None: nothing is encrypted, or every server is accepted. A machine without certificates is no hindrance then.
    NotAsked,
}

/// What a client shows of itself: its certificates, its own first, and their key.
pub type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// A certificate or key that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// What is named as an authority is none.
    #[error("certificate authority: {0}")]
    Authority(rustls::Error),
    /// The machine has none of its own.
    #[error("the system has no certificate authorities: {0}")]
    NoAuthorities(std::io::Error),
    /// The certificate or the key that is to be shown.
    #[error("client certificate and key: {0}")]
    Identity(rustls::Error),
}

/// The TLS of a client. `any_server`: a server is accepted whose certificate nobody has signed, under any name, as long as it has the key of the certificate that it shows.
///
/// # Errors
/// The authority or identity that cannot be used; a machine without authorities where its own are asked for.
pub fn client(authorities: Authorities, identity: Option<Identity>, any_server: bool) -> Result<ClientConfig, TrustError> {
    let builder = ClientConfig::builder();
    let builder = match authorities {
        Authorities::Named(certificates) => builder.with_root_certificates(roots(certificates)?),
        Authorities::OfTheSystem => builder.with_native_roots().map_err(TrustError::NoAuthorities)?,
        Authorities::NotAsked => builder.with_root_certificates(RootCertStore::empty()),
    };
    let mut config = match identity {
        Some((certificates, key)) => builder.with_client_auth_cert(certificates, key).map_err(TrustError::Identity)?,
        None => builder.with_no_client_auth(),
    };
    if any_server {
        config.dangerous().set_certificate_verifier(Arc::new(AnyServer::new()));
    }
    Ok(config)
}

fn roots(certificates: Vec<CertificateDer<'static>>) -> Result<RootCertStore, TrustError> {
    let mut store = RootCertStore::empty();
    for certificate in certificates {
        store.add(certificate).map_err(TrustError::Authority)?;
    }
    Ok(store)
}

/// An error and what caused it, in one line. Some libraries print their source too: nothing is said twice.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(e) = source {
        let more = e.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        source = e.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_certificate_is_refused() {
        let named = Authorities::Named(vec![CertificateDer::from(b"no".as_slice())]);
        assert!(client(named, None, false).unwrap_err().to_string().starts_with("certificate authority: "));
        assert!(client(Authorities::NotAsked, None, true).is_ok());
    }

    #[test]
    fn nothing_is_said_twice() {
        #[derive(Debug, thiserror::Error)]
        #[error("reading: {0}")]
        struct Repeats(#[source] std::io::Error);
        #[derive(Debug, thiserror::Error)]
        #[error("no settings")]
        struct Adds(#[source] Repeats);
        assert_eq!(chain(&Adds(Repeats(std::io::Error::other("broken")))), "no settings: reading: broken");
    }
}
