//! Keys and signatures made by real GnuPG, judged by the policy of `trust`; gpgv is asked, too, and where the two do not agree,
//! the test says so.

// Tests are all effects.
#![allow(clippy::disallowed_methods, reason = "tests drive real programs")]

mod gnupg;
mod packets;

use gnupg::{Gnupg, MADE, SIGNED, gnupg_is_here, gpgv_accepts};
use packets::{SUBKEY_BINDING, is_signature, join, split, without_embedded};
use trust::Timestamp;
use trust::openpgp::{
    KeyProblem, Keyring, KeyringError, Refusal, SignatureError, Signer, sign_detached, verify_detached,
};

const DATA: &[u8] = b"{\"kind\":\"ArtefactManifest\"}\n";
/// Later than everything that is signed here.
const NOW: &str = "2026-01-01T00:00:00Z";

fn now() -> Option<Timestamp> {
    Some(NOW.parse().expect("a time"))
}

fn keyring(bytes: &[u8]) -> Keyring {
    Keyring::parse(bytes).expect("a keyring")
}

fn verify(keyring_bytes: &[u8], signature: &[u8]) -> Result<Signer, SignatureError> {
    verify_detached(DATA, signature, &[keyring(keyring_bytes)], now())
}

/// What speaks against the one signature.
#[track_caller]
fn refusal(verified: Result<Signer, SignatureError>) -> Refusal {
    match verified {
        Err(SignatureError::Refused { refusals }) => {
            assert_eq!(refusals.len(), 1, "{refusals:?}");
            refusals.into_iter().next().expect("one")
        }
        other => panic!("not refused: {other:?}"),
    }
}

#[track_caller]
fn key_problem(verified: Result<Signer, SignatureError>) -> KeyProblem {
    match refusal(verified) {
        Refusal::Key { problem, .. } => problem,
        other => panic!("another refusal: {other}"),
    }
}

#[test]
fn signatures_of_every_algorithm_that_is_good_enough_are_accepted() {
    if !gnupg_is_here() {
        return;
    }
    let gnupg = Gnupg::new();
    for algorithm in ["rsa2048", "rsa3072", "ed25519", "nistp256", "nistp384", "nistp521"] {
        let key = gnupg.make_key(MADE, algorithm, "sign", "never");
        let (keyring, signature) = (gnupg.export(&[&key]), gnupg.sign(SIGNED, &key, DATA));
        let signer = verify(&keyring, &signature).unwrap_or_else(|error| panic!("{algorithm}: {error}"));
        assert_eq!((signer.primary.to_string(), signer.key.to_string()), (key.clone(), key));
        assert_eq!(signer.created.to_string(), "2025-02-01T00:00:00Z");
        assert_eq!(signer.user_id, Some(format!("{algorithm} sign <store@example.org>")));
        assert!(gpgv_accepts(&keyring, &signature, DATA), "{algorithm}");
    }
}

#[test]
fn a_signing_subkey_signs_for_its_primary_key() {
    if !gnupg_is_here() {
        return;
    }
    let gnupg = Gnupg::new();
    let key = gnupg.make_key(MADE, "ed25519", "cert", "never");
    let subkey = gnupg.add_subkey(MADE, &key, "rsa2048", "sign");
    let (keyring, signature) = (gnupg.export(&[&key]), gnupg.sign(SIGNED, &subkey, DATA));
    let signer = verify(&keyring, &signature).expect("good");
    assert_eq!((signer.primary.to_string(), signer.key.to_string()), (key, subkey));
    assert!(gpgv_accepts(&keyring, &signature, DATA));
}

#[test]
fn keyrings_and_signatures_may_be_armoured_or_binary() {
    if !gnupg_is_here() {
        return;
    }
    let gnupg = Gnupg::new();
    let key = gnupg.make_key(MADE, "ed25519", "sign", "never");
    let armoured_keyring = gnupg.run(SIGNED, &["--armor", "--export", &key]);
    let binary_signature = gnupg.sign_with(SIGNED, &["--no-armor"], &key, DATA);
    assert!(binary_signature[0] & 0x80 != 0, "binary");
    for keyring in [gnupg.export(&[&key]), armoured_keyring] {
        for signature in [gnupg.sign(SIGNED, &key, DATA), binary_signature.clone()] {
            verify(&keyring, &signature).expect("good");
        }
    }
}

#[test]
fn a_key_that_is_in_no_keyring_is_unknown() {
    if !gnupg_is_here() {
        return;
    }
    let gnupg = Gnupg::new();
    let [known, other] = [(); 2].map(|()| gnupg.make_key(MADE, "ed25519", "sign", "never"));
    let (keyring, signature) = (gnupg.export(&[&known]), gnupg.sign(SIGNED, &other, DATA));
    assert_eq!(refusal(verify(&keyring, &signature)), Refusal::UnknownKey { issuer: other });
    assert!(!gpgv_accepts(&keyring, &signature, DATA));
}

#[test]
fn a_flipped_bit_in_the_data_is_found() {
    if !gnupg_is_here() {
        return;
    }
    let gnupg = Gnupg::new();
    let key = gnupg.make_key(MADE, "nistp256", "sign", "never");
    let (exported, signature) = (gnupg.export(&[&key]), gnupg.sign(SIGNED, &key, DATA));
    for bit in [0, 77, DATA.len() * 8 - 1] {
        let mut changed = DATA.to_vec();
        changed[bit / 8] ^= 1 << (bit % 8);
        let verified = verify_detached(&changed, &signature, &[keyring(&exported)], now());
        assert!(matches!(refusal(verified), Refusal::DataChanged { .. }));
        assert!(!gpgv_accepts(&exported, &signature, &changed));
    }
}

#[test]
fn expiry_of_a_key_is_judged_when_it_signed() {
    if !gnupg_is_here() {
        return;
    }
    let gnupg = Gnupg::new();
    let key = gnupg.make_key(MADE, "ed25519", "sign", "40d");
    let short = gnupg.export(&[&key]);
    let in_time = gnupg.sign(SIGNED, &key, DATA);
    // gpg does not sign with an expired key: its owner prolonged it, and the keyring does not know.
    gnupg.run(SIGNED, &["--quick-set-expire", &key, "4y"]);
    let late = gnupg.sign("20250601T000000", &key, DATA);
    let long = gnupg.export(&[&key]);
    verify(&short, &in_time).expect("the key expired after it had signed");
    let expired = "2025-02-10T00:00:00Z".parse().expect("a time");
    assert_eq!(key_problem(verify(&short, &late)), KeyProblem::Expired { at: expired });
    verify(&long, &late).expect("the newest binding decides");
    // gpgv says that the key is expired, and ends well all the same.
    assert!(gpgv_accepts(&short, &in_time, DATA) && gpgv_accepts(&short, &late, DATA));
    assert!(gpgv_accepts(&long, &late, DATA));
}

#[test]
fn a_signature_expires_by_the_clock_if_there_is_one() {
    if !gnupg_is_here() {
        return;
    }
    let gnupg = Gnupg::new();
    let key = gnupg.make_key(MADE, "ed25519", "sign", "never");
    let keys = [keyring(&gnupg.export(&[&key]))];
    let signature = gnupg.sign_with(SIGNED, &["--default-sig-expire", "10d"], &key, DATA);
    let at = |time: &str| verify_detached(DATA, &signature, &keys, Some(time.parse().expect("a time")));
    at("2025-02-10T23:59:59Z").expect("not expired yet");
    assert!(matches!(refusal(at("2025-02-11T00:00:00Z")), Refusal::Expired { .. }));
    assert!(matches!(refusal(at("2025-01-31T00:00:00Z")), Refusal::FromTheFuture { .. }));
    at("2025-01-31T23:58:00Z").expect("clocks are never quite the same");
    verify_detached(DATA, &signature, &keys, None).expect("no clock, no dates");
}

#[test]
fn a_signature_from_before_its_key_is_refused() {
    if !gnupg_is_here() {
        return;
    }
    let gnupg = Gnupg::new();
    let key = gnupg.make_key(MADE, "ed25519", "sign", "never");
    let signature = gnupg.sign_with("20241231T000000", &["--ignore-time-conflict"], &key, DATA);
    let problem = key_problem(verify(&gnupg.export(&[&key]), &signature));
    assert_eq!(problem, KeyProblem::MadeLater { at: "2025-01-01T00:00:00Z".parse().expect("a time") });
}

#[test]
fn nothing_of_a_revoked_key_counts() {
    if !gnupg_is_here() {
        return;
    }
    let gnupg = Gnupg::new();
    let [key, other] = [(); 2].map(|()| gnupg.make_key(MADE, "ed25519", "sign", "never"));
    let subkey = gnupg.add_subkey(MADE, &key, "ed25519", "sign");
    let signatures = [&key, &subkey].map(|signer| gnupg.sign(SIGNED, signer, DATA));
    gnupg.revoke("20250301T000000", &key);
    let alone = Keyring::parse(&gnupg.export(&[&key])).expect_err("no key of it can be used");
    let KeyringError::NoUsableKey { keys } = alone else { panic!("{alone}") };
    assert!(keys.len() == 1 && keys[0].key == key, "{keys:?}");
    let keyring = gnupg.export(&[&key, &other]);
    for signature in signatures {
        let problem = key_problem(verify(&keyring, &signature));
        assert!(matches!(&problem, KeyProblem::Revoked { reason, .. } if reason == "no reason given"), "{problem}");
        // gpgv 2.2 takes it: it looks at revocations of subkeys only.
        assert!(gpgv_accepts(&keyring, &signature, DATA));
    }
}

#[test]
fn a_revocation_counts_wherever_the_keyring_has_it() {
    if !gnupg_is_here() {
        return;
    }
    let gnupg = Gnupg::new();
    let [key, other] = [(); 2].map(|()| gnupg.make_key(MADE, "ed25519", "sign", "never"));
    let (before, signature) = (gnupg.export(&[&key]), gnupg.sign(SIGNED, &key, DATA));
    let others = gnupg.export(&[&other]);
    gnupg.revoke("20250301T000000", &key);
    let after = gnupg.export(&[&key]);
    let revocation = split(&after).into_iter().find(|packet| is_signature(packet, 0x20)).expect("a revocation");
    let revocation = join(&[revocation]);
    // Appended to the file of another key, before all keys, or in a second copy of the key.
    for parts in [[&before, &others, &revocation], [&revocation, &before, &others], [&before, &others, &after]] {
        let bytes = parts.map(Vec::as_slice).concat();
        assert!(matches!(key_problem(verify(&bytes, &signature)), KeyProblem::Revoked { .. }));
    }
    // In another keyring.
    let both = [keyring(&before), keyring(&[&others[..], &after].concat())];
    let verified = verify_detached(DATA, &signature, &both, now());
    assert!(matches!(key_problem(verified), KeyProblem::Revoked { .. }));
}

#[test]
fn a_key_may_be_revoked_by_the_key_that_it_named_for_it() {
    if !gnupg_is_here() {
        return;
    }
    let gnupg = Gnupg::new();
    let [key, other] = [(); 2].map(|()| gnupg.make_key(MADE, "ed25519", "sign", "never"));
    gnupg.edit(MADE, &key, &format!("addrevoker\n{other}\ny\n"));
    let signature = gnupg.sign(SIGNED, &key, DATA);
    let before = gnupg.export(&[&key, &other]);
    verify(&before, &signature).expect("it is only named");
    let certificate = gnupg.talk("20250301T000000", &["--armor", "--desig-revoke", &key], "y\n1\n\ny\n");
    let file = gnupg.path("revocation");
    std::fs::write(&file, certificate).expect("a file");
    gnupg.run("20250301T000000", &["--import", file.to_str().expect("path")]);
    let after = gnupg.export(&[&key, &other]);
    assert_ne!(before, after, "the revocation is in it");
    assert_eq!(key_problem(verify(&after, &signature)), KeyProblem::RevokedByAnother { by: other });
}

#[test]
fn what_a_retired_key_signed_before_stays_good() {
    if !gnupg_is_here() {
        return;
    }
    let gnupg = Gnupg::new();
    for (reason, soft) in [(1, false), (2, true), (3, true)] {
        let key = gnupg.make_key(MADE, "ed25519", "sign", "never");
        let [before, after] = [SIGNED, "20250401T000000"].map(|at| gnupg.sign(at, &key, DATA));
        gnupg.revoke_for("20250301T000000", &key, reason);
        let other = gnupg.make_key(MADE, "ed25519", "sign", "never");
        let keyring = gnupg.export(&[&key, &other]);
        if soft {
            verify(&keyring, &before).expect("signed before it was retired");
            assert!(matches!(key_problem(verify(&keyring, &after)), KeyProblem::Retired { .. }));
        } else {
            let problem = key_problem(verify(&keyring, &before));
            assert!(matches!(&problem, KeyProblem::Revoked { reason, .. } if reason == "compromised"), "{problem}");
        }
    }
}

#[test]
fn a_revoked_subkey_is_refused_and_the_others_are_not() {
    if !gnupg_is_here() {
        return;
    }
    let gnupg = Gnupg::new();
    let key = gnupg.make_key(MADE, "ed25519", "cert", "never");
    let [first, second] = [(); 2].map(|()| gnupg.add_subkey(MADE, &key, "ed25519", "sign"));
    let signatures = [&first, &second].map(|signer| gnupg.sign(SIGNED, signer, DATA));
    gnupg.edit("20250301T000000", &key, &format!("key {first}\nrevkey\ny\n0\n\ny\n"));
    let keyring = gnupg.export(&[&key]);
    let Refusal::Key { key: blamed, problem, .. } = refusal(verify(&keyring, &signatures[0])) else {
        panic!("another")
    };
    assert!(blamed.to_string() == first && matches!(problem, KeyProblem::Revoked { .. }), "{blamed} {problem}");
    verify(&keyring, &signatures[1]).expect("the other subkey");
    assert!(gpgv_accepts(&keyring, &signatures[1], DATA));

    // Without what bound it, so that a revocation is all that there is of it.
    let (mut left, mut subkeys) = (Vec::new(), 0);
    for packet in split(&keyring) {
        subkeys += usize::from(packet.0 == 14);
        if !(subkeys == 1 && is_signature(&packet, SUBKEY_BINDING)) {
            left.push(packet);
        }
    }
    assert_eq!(left.len() + 1, split(&keyring).len(), "one packet less");
    assert!(matches!(key_problem(verify(&join(&left), &signatures[0])), KeyProblem::Revoked { .. }));
    left.retain(|packet| !is_signature(packet, 0x28));
    assert_eq!(key_problem(verify(&join(&left), &signatures[0])), KeyProblem::NoBinding);
    assert!(!gpgv_accepts(&join(&left), &signatures[0], DATA));
}

#[test]
fn a_subkey_that_is_not_for_signing_is_refused() {
    if !gnupg_is_here() {
        return;
    }
    let gnupg = Gnupg::new();
    let key = gnupg.make_key(MADE, "rsa2048", "sign", "never");
    let subkey = gnupg.add_subkey(MADE, &key, "rsa2048", "sign");
    let signature = gnupg.sign(SIGNED, &subkey, DATA);
    // gpg does not sign with such a key: it became one after that.
    gnupg.edit("20250301T000000", &key, "key 1\nchange-usage\nS\nE\nQ\n");
    let keyring = gnupg.export(&[&key]);
    assert_eq!(key_problem(verify(&keyring, &signature)), KeyProblem::NotForSigning);
    assert!(!gpgv_accepts(&keyring, &signature, DATA));
}

#[test]
fn sha_1_is_too_weak_for_data_and_for_bindings() {
    if !gnupg_is_here() {
        return;
    }
    let gnupg = Gnupg::new();
    let key = gnupg.make_key(MADE, "rsa2048", "sign", "never");
    let (keyring, weak) = (gnupg.export(&[&key]), gnupg.sign_with(SIGNED, &["--digest-algo", "SHA1"], &key, DATA));
    assert_eq!(refusal(verify(&keyring, &weak)), Refusal::WeakHash { hash: "SHA1".to_owned() });
    // gpgv 2.2 takes this, and what follows.
    assert!(gpgv_accepts(&keyring, &weak, DATA));

    let old = gnupg.make_key_with(MADE, &["--cert-digest-algo", "SHA1"], "rsa2048", "sign", "never");
    let keyring = gnupg.export(&[&old]);
    let error = Keyring::parse(&keyring).expect_err("bound by SHA-1 only");
    assert!(error.to_string().contains("SHA1"), "{error}");
    assert!(gpgv_accepts(&keyring, &gnupg.sign(SIGNED, &old, DATA), DATA));
}

#[test]
fn keys_that_are_too_weak_are_named() {
    if !gnupg_is_here() {
        return;
    }
    let gnupg = Gnupg::new();
    for (algorithm, why) in [("rsa1024", "RSA of 1024 bits"), ("dsa2048", "DSA"), ("secp256k1", "another curve")] {
        let key = gnupg.make_key(MADE, algorithm, "sign", "never");
        let error = Keyring::parse(&gnupg.export(&[&key])).expect_err(algorithm).to_string();
        assert!(error.contains(why) && error.contains(&key), "{error}");
    }
}

#[test]
fn a_signing_subkey_must_have_agreed() {
    if !gnupg_is_here() {
        return;
    }
    let gnupg = Gnupg::new();
    let key = gnupg.make_key(MADE, "ed25519", "sign", "never");
    let subkey = gnupg.add_subkey(MADE, &key, "ed25519", "sign");
    let signature = gnupg.sign(SIGNED, &subkey, DATA);
    let mut packets = split(&gnupg.export(&[&key]));
    let binding = packets.iter_mut().find(|packet| is_signature(packet, SUBKEY_BINDING)).expect("a binding");
    binding.1 = without_embedded(&binding.1);
    let keyring = join(&packets);
    assert_eq!(key_problem(verify(&keyring, &signature)), KeyProblem::NoBackSignature);
    assert!(!gpgv_accepts(&keyring, &signature, DATA));
}

#[test]
fn what_is_cut_off_is_called_damaged_at_every_byte() {
    if !gnupg_is_here() {
        return;
    }
    let gnupg = Gnupg::new();
    let key = gnupg.make_key(MADE, "ed25519", "sign", "never");
    let armoured = gnupg.run(SIGNED, &["--armor", "--export", &key]);
    let (binary, signature) = (gnupg.export(&[&key]), gnupg.sign(SIGNED, &key, DATA));
    for length in 0..armoured.len() - 1 {
        Keyring::parse(&armoured[..length]).expect_err("cut off");
    }
    for length in 0..binary.len() {
        Keyring::parse(&binary[..length]).expect_err("cut off");
    }
    for length in 0..signature.len() - 1 {
        let verified = verify(&binary, &signature[..length]);
        assert!(matches!(verified, Err(SignatureError::Damaged { .. } | SignatureError::Empty)), "{verified:?}");
    }
    let half = &signature[..signature.len() / 2];
    assert!(!gpgv_accepts(&binary, half, DATA));
}

#[test]
fn one_good_signature_suffices() {
    if !gnupg_is_here() {
        return;
    }
    let gnupg = Gnupg::new();
    let [good, unknown] = [(); 2].map(|()| gnupg.make_key(MADE, "ed25519", "sign", "never"));
    let keyring = gnupg.export(&[&good]);
    let signature = gnupg.sign(SIGNED, &good, DATA);
    let of_other_data = gnupg.sign(SIGNED, &good, b"other data");
    let by_another = gnupg.sign(SIGNED, &unknown, DATA);
    for bad in [of_other_data.clone(), by_another.clone()] {
        for both in [[&bad[..], &signature].concat(), [&signature[..], &bad].concat()] {
            assert_eq!(verify(&keyring, &both).expect("one is good").key.to_string(), good);
        }
    }
    let error = verify(&keyring, &[of_other_data, by_another].concat()).expect_err("none is good");
    let SignatureError::Refused { refusals } = error else { panic!("{error}") };
    assert!(matches!(refusals[..], [Refusal::DataChanged { .. }, Refusal::UnknownKey { .. }]), "{refusals:?}");
}

#[test]
fn keys_overlap_while_they_are_exchanged() {
    if !gnupg_is_here() {
        return;
    }
    let gnupg = Gnupg::new();
    let [old, new] = [(); 2].map(|()| gnupg.make_key(MADE, "ed25519", "sign", "never"));
    let [by_old, by_new] = [&old, &new].map(|key| gnupg.sign(SIGNED, key, DATA));
    let [only_old, only_new] = [&old, &new].map(|key| gnupg.export(&[key]));
    let both = gnupg.export(&[&old, &new]);
    for signature in [&by_old, &by_new] {
        verify(&both, signature).expect("in one file");
        let apart = [keyring(&only_old), keyring(&only_new)];
        verify_detached(DATA, signature, &apart, now()).expect("in two files");
    }
    // A node that has only the old key, or only the new one, takes a manifest that is signed by both.
    let signed_by_both = [&by_old[..], &by_new].concat();
    verify(&only_old, &signed_by_both).expect("before");
    verify(&only_new, &signed_by_both).expect("after");
    assert!(verify(&only_new, &by_old).is_err());
}

#[test]
fn a_file_with_a_secret_key_is_no_keyring() {
    if !gnupg_is_here() {
        return;
    }
    let gnupg = Gnupg::new();
    let key = gnupg.make_key(MADE, "ed25519", "sign", "never");
    let secret = gnupg.export_secret(&[], &key);
    assert_eq!(Keyring::parse(&secret).expect_err("secret"), KeyringError::SecretKey);
}

#[test]
fn text_signatures_are_refused() {
    if !gnupg_is_here() {
        return;
    }
    let gnupg = Gnupg::new();
    let key = gnupg.make_key(MADE, "ed25519", "sign", "never");
    let signature = gnupg.sign_with(SIGNED, &["--textmode"], &key, DATA);
    assert!(matches!(refusal(verify(&gnupg.export(&[&key]), &signature)), Refusal::Kind { .. }));
}

#[test]
fn a_critical_notation_that_nobody_knows_is_refused() {
    if !gnupg_is_here() {
        return;
    }
    let gnupg = Gnupg::new();
    let key = gnupg.make_key(MADE, "ed25519", "sign", "never");
    let keyring = gnupg.export(&[&key]);
    let plain = gnupg.sign_with(SIGNED, &["--sig-notation", "board@example.org=a"], &key, DATA);
    verify(&keyring, &plain).expect("not critical");
    let critical = gnupg.sign_with(SIGNED, &["--sig-notation", "!board@example.org=a"], &key, DATA);
    let what = "board@example.org".to_owned();
    assert_eq!(refusal(verify(&keyring, &critical)), Refusal::NotUnderstood { what });
    assert!(!gpgv_accepts(&keyring, &critical, DATA));
}

mod signing;
