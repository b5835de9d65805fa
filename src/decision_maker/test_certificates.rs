//! Certificates for tests.

use rcgen::{BasicConstraints, Certificate, CertificateParams, DnType, IsCa, KeyPair};

/// An authority that issues certificates.
pub struct Authority {
    certificate: Certificate,
    key: KeyPair,
}

impl Authority {
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        Self { certificate: params.self_signed(&key).unwrap(), key }
    }

    pub fn pem(&self) -> String {
        self.certificate.pem()
    }

    /// Its public key in PEM.
    pub fn public_key(&self) -> String {
        self.key.public_key_pem()
    }

    /// A certificate for a server or client of that name, and its key, in PEM.
    pub fn issue(&self, name: &str) -> (String, String) {
        let params = CertificateParams::new([name.to_owned()]).unwrap();
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.certificate, &self.key).unwrap();
        (certificate.pem(), key.serialize_pem())
    }
}
