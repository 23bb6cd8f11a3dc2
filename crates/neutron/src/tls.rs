//! Whom we trust, and what we show: the TLS of a connection.

use std::path::Path;

use openstack::Tls;
use rustls::ClientConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use trust::{Authorities, TrustError, chain};

use crate::SetupError;

/// TLS as the settings want it. `encrypts`: whether any server is reached by https.
pub(crate) fn config(tls: &Tls, encrypts: bool) -> Result<ClientConfig, SetupError> {
    let authorities = match &tls.ca {
        Some(file) => Authorities::Named(shown(file)?),
        None if encrypts && !tls.insecure => Authorities::OfTheSystem,
        None => Authorities::NotAsked,
    };
    let identity = match &tls.identity {
        Some((certificates, key)) => Some((shown(certificates)?, private_key(key)?)),
        None => None,
    };
    trust::client(authorities, identity, tls.insecure).map_err(|e| unusable(tls, e))
}

/// The file whose content cannot be used.
fn unusable(tls: &Tls, error: TrustError) -> SetupError {
    let file = match &error {
        TrustError::Authority(_) => tls.ca.clone(),
        TrustError::Identity(_) => tls.identity.as_ref().map(|(certificates, _)| certificates.clone()),
        TrustError::NoAuthorities(_) => None,
    };
    match file {
        Some(file) => SetupError::File { file, reason: error.to_string() },
        None => SetupError::NoRoots(error.to_string()),
    }
}

fn shown(file: &Path) -> Result<Vec<CertificateDer<'static>>, SetupError> {
    let wrong = |reason: String| SetupError::File { file: file.to_owned(), reason };
    let all = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>).map_err(|e| wrong(chain(&e)))?;
    if all.is_empty() { Err(wrong("no certificate in this file".to_owned())) } else { Ok(all) }
}

fn private_key(file: &Path) -> Result<PrivateKeyDer<'static>, SetupError> {
    PrivateKeyDer::from_pem_file(file).map_err(|e| SetupError::File { file: file.to_owned(), reason: chain(&e) })
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
