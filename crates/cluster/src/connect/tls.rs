//! Whom we trust, and what we show: the TLS of a connection.

use std::error::Error;
use std::io;

use kube::Config;
use rustls::ClientConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use trust::{Authorities, Identity, chain};

/// TLS as the configuration wants it: its certificate authority, or the machine's where it names none.
///
/// # Errors
/// What of certificates and keys is unusable.
pub(super) fn config(config: &Config, identity: Option<&[u8]>) -> Result<ClientConfig, String> {
    let authorities = match &config.root_cert {
        Some(all) => Authorities::Named(all.iter().map(|der| CertificateDer::from(der.as_slice()).into_owned()).collect()),
        // Nothing will be encrypted.
        None if config.cluster_url.scheme_str() == Some("http") => Authorities::NotAsked,
        None => Authorities::OfTheSystem,
    };
    let identity = identity.map(shown).transpose()?;
    trust::client(authorities, identity, config.accept_invalid_certs).map_err(|e| e.to_string())
}

/// Whether a request failed because we did not trust the server: its authority may be another one by now.
pub(super) fn is_distrust(error: &(dyn Error + 'static)) -> bool {
    let of = |e: &(dyn Error + 'static)| matches!(e.downcast_ref(), Some(rustls::Error::InvalidCertificate(_)));
    // What an I/O error wraps is not among its sources.
    let wrapped = |e: &(dyn Error + 'static)| {
        let inner = e.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        inner.is_some_and(|inner| is_distrust(inner))
    };
    of(error) || wrapped(error) || error.source().is_some_and(is_distrust)
}

fn shown(pem: &[u8]) -> Result<Identity, String> {
    let certificates = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    let certificates = certificates.map_err(|e| format!("client certificate: {}", chain(&e)))?;
    let key = PrivateKeyDer::from_pem_slice(pem).map_err(|e| format!("client key: {}", chain(&e)))?;
    match certificates.is_empty() {
        true => Err("client certificate: the file has none".to_owned()),
        false => Ok((certificates, key)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distrust_is_found_however_deep() {
        let distrust = || rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
        assert!(is_distrust(&distrust()));
        assert!(is_distrust(&kube::Error::Service(Box::new(io::Error::other(io::Error::other(distrust()))))));
        assert!(!is_distrust(&kube::Error::Service(Box::new(io::Error::other(rustls::Error::DecryptError)))));
    }

    #[test]
    fn what_is_no_certificate_is_told_so() {
        let mut wanted = Config::new("https://10.0.0.1".parse().unwrap());
        wanted.root_cert = Some(vec![b"no".to_vec()]);
        assert!(super::config(&wanted, None).unwrap_err().starts_with("certificate authority: "));
        wanted.root_cert = Some(Vec::new());
        assert!(super::config(&wanted, Some(b"no")).unwrap_err().starts_with("client key: "));
        assert!(super::config(&wanted, None).is_ok());
    }
}
