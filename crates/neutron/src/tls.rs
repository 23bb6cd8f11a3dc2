//! Whom we trust, and what we show: the TLS of a connection.

use std::path::Path;
use std::sync::Arc;

use hyper_rustls::ConfigBuilderExt;
use openstack::Tls;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::SetupError;
use crate::error::chain;

/// TLS as the settings want it. `encrypts`: whether any server is reached by https.
pub(crate) fn config(tls: &Tls, encrypts: bool) -> Result<ClientConfig, SetupError> {
    let builder = ClientConfig::builder();
    let builder = match &tls.ca {
        Some(file) => builder.with_root_certificates(roots(file)?),
        // Nothing is looked up: a machine without certificates is no hindrance.
        None if !encrypts || tls.insecure => builder.with_root_certificates(RootCertStore::empty()),
        None => builder.with_native_roots().map_err(|e| SetupError::NoRoots(e.to_string()))?,
    };
    let mut config = match &tls.identity {
        None => builder.with_no_client_auth(),
        Some((certificates, key)) => {
            let wrong = |e: rustls::Error| SetupError::File { file: certificates.clone(), reason: e.to_string() };
            builder.with_client_auth_cert(shown(certificates)?, private_key(key)?).map_err(wrong)?
        }
    };
    if tls.insecure {
        let anybody = Anybody(ring::default_provider().signature_verification_algorithms);
        config.dangerous().set_certificate_verifier(Arc::new(anybody));
    }
    Ok(config)
}

fn roots(file: &Path) -> Result<RootCertStore, SetupError> {
    let mut store = RootCertStore::empty();
    for authority in shown(file)? {
        store.add(authority).map_err(|e| SetupError::File { file: file.to_owned(), reason: e.to_string() })?;
    }
    Ok(store)
}

fn shown(file: &Path) -> Result<Vec<CertificateDer<'static>>, SetupError> {
    let wrong = |reason: String| SetupError::File { file: file.to_owned(), reason };
    let all = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>).map_err(|e| wrong(chain(&e)))?;
    if all.is_empty() { Err(wrong("no certificate in this file".to_owned())) } else { Ok(all) }
}

fn private_key(file: &Path) -> Result<PrivateKeyDer<'static>, SetupError> {
    PrivateKeyDer::from_pem_file(file).map_err(|e| SetupError::File { file: file.to_owned(), reason: chain(&e) })
}

/// `insecure`: whoever has the key of the certificate that it shows.
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
    fn what_is_no_certificate_is_told_with_its_file() {
        let file = |ca: &str| Tls { ca: Some(ca.into()), ..Tls::default() };
        let missing = super::config(&file("/nowhere/ca.pem"), true).unwrap_err().to_string();
        assert!(missing.starts_with("/nowhere/ca.pem: ") && missing.contains("No such file"), "{missing}");
        let empty = super::config(&file("/dev/null"), true).unwrap_err();
        assert_eq!(empty.to_string(), "/dev/null: no certificate in this file");
        assert!(super::config(&Tls::default(), false).is_ok());
    }
}
