//! The policy: whether the signatures of a key count, at any time or at one.

use super::key::{BackSignature, Binding, Component, Key, Strength};
use super::{Fingerprint, KeyProblem};
use crate::timestamp::Timestamp;

impl Key {
    /// Whether signatures of this part of the key count; if not, which part of the key is to blame.
    ///
    /// `at` is when a signature was made. Without it only that is judged which no time can change.
    pub(super) fn judge(&self, signer: &Component, at: Option<Timestamp>) -> Result<(), (Fingerprint, KeyProblem)> {
        let primary = &self.primary;
        primary.judge_standing(at).map_err(|problem| (primary.fingerprint.clone(), problem))?;
        let own = signer.judge_standing(at).and_then(judge_use);
        own.map_err(|problem| (signer.fingerprint.clone(), problem))
    }
}

impl Component {
    /// Whether it is a sound key of its owner; with the binding that decides.
    fn judge_standing(&self, at: Option<Timestamp>) -> Result<&Binding, KeyProblem> {
        if let Some(flaw) = &self.flaw {
            return Err(flaw.clone());
        }
        self.judge_revocations(at)?;
        let binding = self.deciding_binding(at).ok_or_else(|| match &self.weak_binding {
            Some(hash) => KeyProblem::WeakBinding { hash: hash.clone() },
            None => KeyProblem::NoBinding,
        })?;
        match (at, binding.key_expires) {
            (Some(at), _) if at < self.created => Err(KeyProblem::MadeLater { at: self.created }),
            (Some(at), Some(expires)) if at >= expires => Err(KeyProblem::Expired { at: expires }),
            _ => Ok(binding),
        }
    }

    fn judge_revocations(&self, at: Option<Timestamp>) -> Result<(), KeyProblem> {
        if let Some(hard) = self.revocations.iter().find(|revocation| revocation.strength == Strength::Hard) {
            return Err(match &hard.by {
                Some(by) => KeyProblem::RevokedByAnother { by: by.clone() },
                None => KeyProblem::Revoked { at: hard.created, reason: hard.reason.clone() },
            });
        }
        let first = self.revocations.iter().min_by_key(|revocation| revocation.created);
        match (first, at) {
            (Some(soft), Some(at)) if at >= soft.created => {
                Err(KeyProblem::Retired { at: soft.created, reason: soft.reason.clone() })
            }
            _ => Ok(()),
        }
    }

    /// The newest that says what the key is for; one that says nothing (it may name a revoker only) decides nothing.
    fn deciding_binding(&self, at: Option<Timestamp>) -> Option<&Binding> {
        let lasts = |binding: &&Binding| match (binding.ends, at) {
            (Some(ends), Some(at)) => at < ends,
            _ => true,
        };
        let mut lasting = self.bindings.iter().filter(lasts);
        let newest = lasting.clone().next();
        lasting.find(|binding| binding.may_sign.is_some()).or(newest)
    }
}

fn judge_use(binding: &Binding) -> Result<(), KeyProblem> {
    match (binding.may_sign, binding.back_signature) {
        (None | Some(false), _) => Err(KeyProblem::NotForSigning),
        (Some(true), BackSignature::Missing) => Err(KeyProblem::NoBackSignature),
        (Some(true), BackSignature::Bad) => Err(KeyProblem::BadBackSignature),
        (Some(true), BackSignature::Good | BackSignature::NotNeeded) => Ok(()),
    }
}
