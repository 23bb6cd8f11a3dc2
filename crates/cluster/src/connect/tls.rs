//! Whom we trust, and what we show: the TLS of a connection.

use std::error::Error;
use std::io;
use std::sync::Arc;

use hyper_rustls::ConfigBuilderExt;
use kube::Config;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::error::chain;

/// TLS as the configuration wants it: its certificate authority, or the machine's where it names none.
///
/// # Errors
/// What of certificates and keys is unusable.
pub(super) fn config(config: &Config, identity: Option<&[u8]>) -> Result<ClientConfig, String> {
    let builder = ClientConfig::builder();
    let builder = match &config.root_cert {
        Some(authorities) => builder.with_root_certificates(roots(authorities)?),
        // Nothing will be encrypted.
        None if config.cluster_url.scheme_str() == Some("http") => builder.with_root_certificates(RootCertStore::empty()),
        None => builder.with_native_roots().map_err(|e| format!("no certificate authority is configured, and the system has none: {e}"))?,
    };
    let mut tls = match identity {
        None => builder.with_no_client_auth(),
        Some(pem) => {
            let (certificates, key) = shown(pem)?;
            builder.with_client_auth_cert(certificates, key).map_err(|e| format!("client certificate and key: {e}"))?
        }
    };
    if config.accept_invalid_certs {
        let anybody = Anybody(ring::default_provider().signature_verification_algorithms);
        tls.dangerous().set_certificate_verifier(Arc::new(anybody));
    }
    Ok(tls)
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

fn roots(authorities: &[Vec<u8>]) -> Result<RootCertStore, String> {
    let mut store = RootCertStore::empty();
    for der in authorities {
        store.add(CertificateDer::from(der.as_slice()).into_owned()).map_err(|e| format!("certificate authority: {e}"))?;
    }
    Ok(store)
}

fn shown(pem: &[u8]) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), String> {
    let certificates = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    let certificates = certificates.map_err(|e| format!("client certificate: {}", chain(&e)))?;
    let key = PrivateKeyDer::from_pem_slice(pem).map_err(|e| format!("client key: {}", chain(&e)))?;
    match certificates.is_empty() {
        true => Err("client certificate: the file has none".to_owned()),
        false => Ok((certificates, key)),
    }
}

/// `insecure-skip-tls-verify`: whoever has the key of the certificate that it shows.
#[derive(Debug)]
struct Anybody(WebPkiSupportedAlgorithms);

// === impl Anybody ===

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
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
