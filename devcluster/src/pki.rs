//! The certificates and keys of a cluster.
//!
//! Belongs here: the certificate authority, one serving certificate, client certificates and the key that
//! signs service account tokens. Never here: who may do what (that is RBAC's, by the groups named here).
//! Invariant: every cluster has an authority of its own that nothing outside trusts, and its private key is
//! never written to disk.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};

use crate::error::{Error, Result};
use crate::net;

/// Who is allowed everything.
pub(crate) const ADMINS: &str = "system:masters";

/// Paths of the files that the components read.
pub(crate) struct Pki {
    dir: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

impl Pki {
    /// Makes an authority, the serving certificate and the service account keys in `dir`.
    pub(crate) fn create(dir: &Path) -> Result<Self> {
        fs::create_dir_all(dir).map_err(Error::io("creating", dir))?;
        let mut params = CertificateParams::new(Vec::<String>::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(DnType::CommonName, "devcluster");
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?;
        let pki = Self { dir: dir.to_owned(), issuer: Issuer::new(params, key) };
        pki.write("ca.crt", &certificate.pem())?;
        pki.serving()?;

        let accounts = KeyPair::generate()?;
        pki.write("sa.key", &accounts.serialize_pem())?;
        pki.write("sa.pub", &accounts.public_key_pem())?;
        Ok(pki)
    }

    pub(crate) fn ca(&self) -> PathBuf {
        self.dir.join("ca.crt")
    }

    pub(crate) fn serving_certificate(&self) -> PathBuf {
        self.dir.join("serving.crt")
    }

    pub(crate) fn serving_key(&self) -> PathBuf {
        self.dir.join("serving.key")
    }

    pub(crate) fn account_private_key(&self) -> PathBuf {
        self.dir.join("sa.key")
    }

    pub(crate) fn account_public_key(&self) -> PathBuf {
        self.dir.join("sa.pub")
    }

    /// A client certificate for `user`, a member of `group`; returns a kubeconfig file that uses it.
    pub(crate) fn client(&self, file: &str, user: &str, group: Option<&str>) -> Result<PathBuf> {
        let mut params = CertificateParams::new(Vec::<String>::new())?;
        params.distinguished_name.push(DnType::CommonName, user);
        if let Some(group) = group {
            params.distinguished_name.push(DnType::OrganizationName, group);
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        let certificate = self.write(&format!("{file}.crt"), &certificate.pem())?;
        let key = self.write(&format!("{file}.key"), &key.serialize_pem())?;
        let credentials = serde_json::json!({ "client-certificate": certificate, "client-key": key });
        self.kubeconfig(file, user, &credentials)
    }

    /// A kubeconfig file with the given credentials. JSON, which every reader of YAML reads.
    pub(crate) fn kubeconfig(
        &self,
        file: &str,
        user: &str,
        credentials: &serde_json::Value,
    ) -> Result<PathBuf> {
        let config = serde_json::json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{ "name": "devcluster", "cluster": {
                "server": net::server_url(), "certificate-authority": self.ca() } }],
            "users": [{ "name": user, "user": credentials }],
            "contexts": [{ "name": "devcluster", "context": { "cluster": "devcluster", "user": user } }],
            "current-context": "devcluster",
        });
        self.write(&format!("{file}.kubeconfig"), &format!("{config:#}\n"))
    }

    /// `token`, which is a service account's, as it would be had it ended an hour ago: with the same claims, and signed
    /// by the same key.
    pub(crate) fn expired(&self, token: &str) -> Result<String> {
        let odd =
            |why: &str| Error::Usage(format!("the token of a service account is not as expected: {why}"));
        let mut parts = token.split('.');
        let (Some(header), Some(claims)) = (parts.next(), parts.next()) else {
            return Err(odd("it is no JSON Web Token"));
        };
        let claims = URL_SAFE_NO_PAD.decode(claims).map_err(|error| odd(&error.to_string()))?;
        let mut claims: serde_json::Value =
            serde_json::from_slice(&claims).map_err(|error| odd(&error.to_string()))?;
        let now = jiff::Timestamp::now().as_second();
        for (claim, hours_ago) in [("iat", 2), ("nbf", 2), ("exp", 1)] {
            claims[claim] = (now - hours_ago * 3600).into();
        }
        let signed = format!("{header}.{}", URL_SAFE_NO_PAD.encode(claims.to_string()));

        let path = self.account_private_key();
        let pem = fs::read_to_string(&path).map_err(Error::io("reading", &path))?;
        let key = KeyPair::from_pem(&pem)?.serialize_der();
        let random = SystemRandom::new();
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &key, &random)
            .map_err(|error| odd(&error.to_string()))?;
        let signature = key.sign(&random, signed.as_bytes()).map_err(|error| odd(&error.to_string()))?;
        Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }

    /// One certificate serves every component: it is valid for each address and name that one may be called by.
    fn serving(&self) -> Result<()> {
        let names = [
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "kubernetes.default.svc.cluster.local",
            "localhost",
        ];
        let addresses = net::all().into_iter().chain([net::SERVICE_APISERVER, Ipv4Addr::LOCALHOST]);
        let hosts: Vec<_> =
            names.into_iter().map(str::to_owned).chain(addresses.map(|a| a.to_string())).collect();
        let mut params = CertificateParams::new(hosts)?;
        params.distinguished_name.push(DnType::CommonName, "kube-apiserver");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        self.write("serving.crt", &certificate.pem())?;
        self.write("serving.key", &key.serialize_pem())?;
        Ok(())
    }

    fn write(&self, name: &str, content: &str) -> Result<PathBuf> {
        let path = self.dir.join(name);
        fs::write(&path, content).map_err(Error::io("writing", &path))?;
        Ok(path)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may fail where it stands")]
mod tests {
    use super::*;

    #[test]
    fn every_file_a_component_reads_is_there_and_the_authoritys_key_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let pki = Pki::create(dir.path()).unwrap();
        let admin = pki.client("admin", "admin", Some(ADMINS)).unwrap();
        for path in [
            pki.ca(),
            pki.serving_certificate(),
            pki.serving_key(),
            pki.account_private_key(),
            pki.account_public_key(),
            admin.clone(),
        ] {
            assert!(path.is_file(), "{}", path.display());
        }
        assert!(!dir.path().join("ca.key").exists());
        let config = kube::config::Kubeconfig::read_from(admin).unwrap();
        assert_eq!(config.current_context.as_deref(), Some("devcluster"));
    }
}
