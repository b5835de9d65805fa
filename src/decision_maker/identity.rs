//! Certificates and keys: reads them, and configures TLS with them.

use std::fmt;
use std::io;
use std::sync::Arc;

use hyper_rustls::ConfigBuilderExt;
use rustls::client::WantsClientCert;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, SubjectPublicKeyInfoDer};
use rustls::{ClientConfig, ConfigBuilder, RootCertStore, WantsVerifier};

/// A client's certificate and key, and the authorities whose servers it trusts.
#[derive(PartialEq, Eq)]
pub struct Identity {
    certificates: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    authorities: Vec<CertificateDer<'static>>,
}

/// Which part of an [`Identity`] is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Certificate,
    Key,
    Authorities,
}

/// What is wrong with a certificate, a key or TLS. Damaged PEM is not quoted: it may be a key.
#[derive(Debug, thiserror::Error)]
pub enum Unfit {
    #[error("no {what} in PEM (-----BEGIN ...) in it")]
    NoPem { what: &'static str },
    #[error("damaged PEM; expected a {what}")]
    DamagedPem { what: &'static str },
    #[error("not an authority's certificate: {0}")]
    NoAuthority(#[source] rustls::Error),
    #[error("no key for the certificate: {0}")]
    NoKey(#[source] rustls::Error),
    #[error("no certificate authorities on this machine: {0}")]
    NoAuthorities(#[source] io::Error),
    #[error("{0}")]
    NoVersion(#[source] rustls::Error),
}

type Bad = (Part, Unfit);

/// Does not show the key.
impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").finish_non_exhaustive()
    }
}

impl Identity {
    /// Reads the certificate, the key and the authorities from PEM. The certificate may be followed
    /// by the intermediate ones between it and its authority.
    ///
    /// Fails with the part that is wrong if one is missing, cannot be read or does not fit
    /// the others.
    pub fn new(certificate: &str, key: &str, authorities: &str) -> Result<Self, Bad> {
        let this = Self {
            certificates: certificates(certificate).map_err(|e| (Part::Certificate, e))?,
            key: PrivateKeyDer::from_pem_slice(key.as_bytes())
                .map_err(|e| (Part::Key, wrong_pem(&e, "private key")))?,
            authorities: certificates(authorities).map_err(|e| (Part::Authorities, e))?,
        };
        this.build()?;
        Ok(this)
    }

    /// The TLS configuration of this client.
    pub fn client_config(&self) -> Result<ClientConfig, Unfit> {
        self.build().map_err(|(_, why)| why)
    }

    fn build(&self) -> Result<ClientConfig, Bad> {
        let mut roots = RootCertStore::empty();
        for authority in &self.authorities {
            let added = roots.add(authority.clone());
            added.map_err(|e| (Part::Authorities, Unfit::NoAuthority(e)))?;
        }
        let builder = versions().map_err(|e| (Part::Key, e))?.with_root_certificates(roots);
        let config = builder.with_client_auth_cert(self.certificates.clone(), self.key.clone_key());
        config.map_err(|e| (Part::Key, Unfit::NoKey(e)))
    }
}

/// TLS without a client certificate, which trusts this machine's authorities.
pub(super) fn machines_config() -> Result<ClientConfig, Unfit> {
    let builder: io::Result<ConfigBuilder<ClientConfig, WantsClientCert>> =
        versions()?.with_native_roots();
    builder.map(|builder| builder.with_no_client_auth()).map_err(Unfit::NoAuthorities)
}

/// TLS that trusts nobody, for a server without TLS.
pub(super) fn no_config() -> Result<ClientConfig, Unfit> {
    Ok(versions()?.with_root_certificates(RootCertStore::empty()).with_no_client_auth())
}

/// TLS 1.2 and 1.3.
fn versions() -> Result<ConfigBuilder<ClientConfig, WantsVerifier>, Unfit> {
    ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(Unfit::NoVersion)
}

/// Fails if `text` is not a public key in PEM.
pub fn check_public_key(text: &str) -> Result<(), Unfit> {
    let read = SubjectPublicKeyInfoDer::from_pem_slice(text.as_bytes());
    read.map(drop).map_err(|e| wrong_pem(&e, "public key"))
}

fn certificates(text: &str) -> Result<Vec<CertificateDer<'static>>, Unfit> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    match all {
        Ok(all) if all.is_empty() => Err(wrong_pem(&pem::Error::NoItemsFound, "certificate")),
        Ok(all) => Ok(all),
        Err(e) => Err(wrong_pem(&e, "certificate")),
    }
}

fn wrong_pem(e: &pem::Error, what: &'static str) -> Unfit {
    match e {
        pem::Error::NoItemsFound => Unfit::NoPem { what },
        _ => Unfit::DamagedPem { what },
    }
}
