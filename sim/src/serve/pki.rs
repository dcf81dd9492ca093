//! The certificates of a served cluster: an authority, one server, one client.
//!
//! Here belong keys and certificates; nothing is written to a disk. The invariant: the authority's key is dropped at
//! once, so nobody else gets a certificate of it.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig, crypto};

/// A certificate with its key.
pub(super) struct Identity {
    certificate: Certificate,
    key: KeyPair,
}

impl Identity {
    pub(super) fn certificate_pem(&self) -> String {
        self.certificate.pem()
    }

    pub(super) fn key_pem(&self) -> String {
        self.key.serialize_pem()
    }
}

pub(super) struct Pki {
    authority: Certificate,
    server: Identity,
    pub(super) admin: Identity,
}

impl Pki {
    /// Makes new certificates, for servers at these addresses. The authority's key is dropped, so it can sign nothing
    /// else.
    pub(super) fn create(at: impl Iterator<Item = IpAddr>) -> Result<Self, rcgen::Error> {
        let mut params = CertificateParams::new(Vec::<String>::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(DnType::CommonName, "virtual-cluster");
        let key = KeyPair::generate()?;
        let authority = params.self_signed(&key)?;
        let issuer = Issuer::new(params, key);
        let signed = |names: &[String], who: &[(DnType, &str)], usage| {
            let mut params = CertificateParams::new(names)?;
            for (what, name) in who {
                params.distinguished_name.push(what.clone(), *name);
            }
            params.extended_key_usages = vec![usage];
            let key = KeyPair::generate()?;
            Ok::<_, rcgen::Error>(Identity { certificate: params.signed_by(&key, &issuer)?, key })
        };
        let names = ["127.0.0.1", "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"];
        let names: BTreeSet<String> =
            names.map(str::to_owned).into_iter().chain(at.map(|address| address.to_string())).collect();
        let names: Vec<String> = names.into_iter().collect();
        let server =
            signed(&names, &[(DnType::CommonName, "kube-apiserver")], ExtendedKeyUsagePurpose::ServerAuth)?;
        let who = [(DnType::CommonName, "admin"), (DnType::OrganizationName, "system:masters")];
        let admin = signed(&[], &who, ExtendedKeyUsagePurpose::ClientAuth)?;
        Ok(Self { authority, server, admin })
    }

    pub(super) fn authority_pem(&self) -> String {
        self.authority.pem()
    }

    /// The servers' TLS settings: they accept only clients with a certificate of this authority.
    pub(super) fn server(&self) -> io::Result<ServerConfig> {
        let provider = Arc::new(crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(self.authority.der().clone()).map_err(io::Error::other)?;
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
            .build()
            .map_err(io::Error::other)?;
        let chain: Vec<CertificateDer<'static>> = vec![self.server.certificate.der().clone()];
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.server.key.serialize_der()));
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_client_cert_verifier(clients)
            .with_single_cert(chain, key)
            .map_err(io::Error::other)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }
}
