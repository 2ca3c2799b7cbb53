//! What we sign with keys of gpg, and what gpgv says about it.

use super::*;
use trust::openpgp::SigningError;

fn at(time: &str) -> Timestamp {
    time.parse().expect("a time")
}

#[test]
fn gpgv_accepts_what_we_sign() {
    if !gnupg_is_here() {
        return;
    }
    let gnupg = Gnupg::new();
    for algorithm in ["rsa2048", "ed25519", "nistp256", "nistp384", "nistp521"] {
        let key = gnupg.make_key(MADE, algorithm, "sign", "never");
        let (keyring, secret) = (gnupg.export(&[&key]), gnupg.export_secret(&[], &key));
        let signature = sign_detached(DATA, &secret, None, at("2025-02-01T00:00:00Z")).expect(algorithm);
        assert!(gpgv_accepts(&keyring, signature.as_bytes(), DATA), "{algorithm}:\n{signature}");
        let signer = verify(&keyring, signature.as_bytes()).expect("ours");
        assert_eq!((signer.key.to_string(), signer.created), (key, at("2025-02-01T00:00:00Z")));
        assert!(!gpgv_accepts(&keyring, signature.as_bytes(), b"other data"));
    }
}

#[test]
fn the_newest_signing_subkey_signs_also_without_its_primary_key() {
    if !gnupg_is_here() {
        return;
    }
    let gnupg = Gnupg::new();
    let key = gnupg.make_key(MADE, "ed25519", "cert,sign", "never");
    gnupg.add_subkey(MADE, &key, "ed25519", "sign");
    let newest = gnupg.add_subkey("20250102T000000", &key, "rsa2048", "sign");
    gnupg.add_subkey("20250103T000000", &key, "cv25519", "encrypt");
    let keyring = gnupg.export(&[&key]);
    let subkeys_only = gnupg.run(SIGNED, &["--armor", "--export-secret-subkeys", &key]);
    for secret in [gnupg.export_secret(&[], &key), subkeys_only] {
        let signature = sign_detached(DATA, &secret, None, at("2025-02-01T00:00:00Z")).expect("signed");
        assert_eq!(verify(&keyring, signature.as_bytes()).expect("good").key.to_string(), newest);
        assert!(gpgv_accepts(&keyring, signature.as_bytes(), DATA));
    }
    // Before it was made it signs nothing.
    let early = sign_detached(DATA, &gnupg.export_secret(&[], &key), None, at("2025-01-01T12:00:00Z")).expect("signed");
    assert_ne!(verify(&keyring, early.as_bytes()).expect("good").key.to_string(), newest);
}

#[test]
fn a_passphrase_is_asked_for_and_tried() {
    if !gnupg_is_here() {
        return;
    }
    let gnupg = Gnupg::new();
    let user = "locked <store@example.org>";
    gnupg.run(MADE, &["--passphrase", "opensesame", "--quick-generate-key", user, "ed25519", "sign", "never"]);
    let secret = gnupg.run(SIGNED, &["--passphrase", "opensesame", "--armor", "--export-secret-keys", user]);
    let sign = |passphrase: Option<&[u8]>| sign_detached(DATA, &secret, passphrase, at("2025-02-01T00:00:00Z"));
    assert!(matches!(sign(None), Err(SigningError::PassphraseNeeded { .. })));
    let wrong = sign(Some(b"guess")).expect_err("wrong");
    assert!(matches!(wrong, SigningError::WrongPassphrase { .. }) && !wrong.to_string().contains("guess"), "{wrong}");
    let signature = sign(Some(b"opensesame")).expect("signed");
    assert!(gpgv_accepts(&gnupg.export(&[user]), signature.as_bytes(), DATA));
}

#[test]
fn a_key_that_may_not_sign_does_not() {
    if !gnupg_is_here() {
        return;
    }
    let gnupg = Gnupg::new();
    let in_february = at("2025-02-01T00:00:00Z");
    let refused = |key: &str| match sign_detached(DATA, &gnupg.export_secret(&[], key), None, in_february) {
        Err(SigningError::NoUsableKey { keys }) => {
            keys.into_iter().map(|unusable| unusable.problem).collect::<Vec<_>>()
        }
        other => panic!("not refused: {other:?}"),
    };
    let certifies = gnupg.make_key(MADE, "ed25519", "cert", "never");
    assert_eq!(refused(&certifies), [KeyProblem::NotForSigning]);
    let expired = gnupg.make_key(MADE, "ed25519", "sign", "10d");
    assert!(matches!(refused(&expired)[..], [KeyProblem::Expired { .. }]));
    let revoked = gnupg.make_key(MADE, "ed25519", "sign", "never");
    gnupg.revoke(SIGNED, &revoked);
    assert!(matches!(refused(&revoked)[..], [KeyProblem::Revoked { .. }]));

    let public = gnupg.export(&[&certifies]);
    assert_eq!(sign_detached(DATA, &public, None, in_february), Err(SigningError::NoSecretKey));
    let two = [gnupg.export_secret(&[], &certifies), gnupg.export_secret(&[], &expired)].concat();
    assert_eq!(sign_detached(DATA, &two, None, in_february), Err(SigningError::SeveralKeys { count: 2 }));
}
