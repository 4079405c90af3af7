//! Builds the signed JWT with which a client authenticates (`private_key_jwt`, RFC 7523).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rustls::SignatureScheme;
use rustls::crypto::ring::{default_provider, sign};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use serde_json::json;
use std::time::{SystemTime, UNIX_EPOCH};

/// Lifetime of an assertion in seconds.
const HOLDS: u64 = 300;

/// Signature algorithms in order of preference, with the size in bytes of each half of an ECDSA signature.
const KNOWN: [(&str, SignatureScheme, Option<usize>); 6] = [
    ("ES256", SignatureScheme::ECDSA_NISTP256_SHA256, Some(32)),
    ("ES384", SignatureScheme::ECDSA_NISTP384_SHA384, Some(48)),
    ("RS256", SignatureScheme::RSA_PKCS1_SHA256, None),
    ("RS384", SignatureScheme::RSA_PKCS1_SHA384, None),
    ("RS512", SignatureScheme::RSA_PKCS1_SHA512, None),
    ("EdDSA", SignatureScheme::ED25519, None),
];

/// An assertion by `client` for the authorization server `audience`, signed with the key `pem` and one of the
/// `accepted` algorithms.
///
/// # Errors
/// The key cannot be read, or supports no accepted algorithm. The message contains nothing of the key.
pub fn made(pem: &str, client: &str, audience: &str, accepted: Option<&[String]>) -> Result<String, String> {
    let key = PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|_| {
        "`private_key` is not a private key in PEM form (it begins with `-----BEGIN PRIVATE KEY-----`)".to_owned()
    })?;
    let key = sign::any_supported_type(&key).map_err(|_| "`private_key` has an unknown type".to_owned())?;
    let accepts = |name: &str| accepted.is_none_or(|accepted| accepted.iter().any(|one| one == name));
    let found = KNOWN.iter().filter(|(name, ..)| accepts(name));
    let signer = found.filter_map(|(name, scheme, half)| Some((*name, *half, key.choose_scheme(&[*scheme])?)));
    let Some((name, half, signer)) = signer.into_iter().next() else {
        let accepted = accepted.unwrap_or_default().join(", ");
        return Err(format!(
            "the server accepts no signature algorithm of this key; it accepts: {accepted}"
        ));
    };
    let mut id = [0; 16];
    let random = default_provider().secure_random.fill(&mut id);
    random.map_err(|_| "no random numbers are available".to_owned())?;
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs();
    let head = json!({ "alg": name, "typ": "JWT" });
    let claims = json!({
        "iss": client, "sub": client, "aud": audience,
        "iat": now, "exp": now + HOLDS, "jti": URL_SAFE_NO_PAD.encode(id),
    });
    let part = |value: &serde_json::Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let text = format!("{}.{}", part(&head), part(&claims));
    let signed = signer
        .sign(text.as_bytes())
        .map_err(|_| "the assertion could not be signed".to_owned())?;
    let signature = match half {
        None => signed,
        Some(half) => {
            halves(&signed, half).ok_or_else(|| "the signature of the assertion has an unknown form".to_owned())?
        }
    };
    Ok(format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature)))
}

/// Converts an ECDSA signature from ASN.1 (as in TLS) to its two numbers of `half` bytes each (as in JWS, RFC 7518).
fn halves(signed: &[u8], half: usize) -> Option<Vec<u8>> {
    let (inside, rest) = value(signed, 0x30)?;
    let (r, after) = value(inside, 0x02)?;
    let (s, end) = value(after, 0x02)?;
    if !rest.is_empty() || !end.is_empty() {
        return None;
    }
    let mut out = Vec::with_capacity(2 * half);
    for number in [r, s] {
        let zeros = number.iter().take_while(|&&byte| byte == 0).count();
        let number = number.get(zeros..)?;
        out.resize(out.len() + half.checked_sub(number.len())?, 0);
        out.extend_from_slice(number);
    }
    Some(out)
}

/// The contents of an ASN.1 value with this tag and less than 256 bytes, and the remaining bytes.
fn value(bytes: &[u8], kind: u8) -> Option<(&[u8], &[u8])> {
    let (&[first, length], rest) = bytes.split_first_chunk::<2>()?;
    if first != kind {
        return None;
    }
    let (length, rest) = match length {
        0..=0x7f => (length, rest),
        0x81 => rest.split_first().map(|(length, rest)| (*length, rest))?,
        _ => return None,
    };
    rest.split_at_checked(usize::from(length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_padded_and_lose_their_sign_byte() {
        let signed = [0x30, 0x08, 0x02, 0x03, 0x00, 0x81, 0x02, 0x02, 0x01, 0x05];
        assert_eq!(halves(&signed, 4), Some(vec![0, 0, 0x81, 2, 0, 0, 0, 5]));
        assert_eq!(halves(&signed, 1), None);
        assert_eq!(halves(&signed[..9], 4), None);
        let long = [&[0x30, 0x81, 0x08][..], &signed[2..]].concat();
        assert_eq!(halves(&long, 4), halves(&signed, 4));
    }

    #[test]
    fn the_error_for_a_bad_key_does_not_contain_the_key() {
        let told = made("hunter2", "me", "https://a", None).unwrap_err();
        assert!(
            told.contains("not a private key") && !told.contains("hunter2"),
            "{told}"
        );
    }
}
