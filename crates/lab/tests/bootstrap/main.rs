//! nodestrap on booted nodes: real systemd, real cloud-init, a real kubelet and a real API server.
#![allow(clippy::disallowed_methods, clippy::print_stdout, reason = "tests drive real processes")]

mod clock;
mod config_drive;
mod copied_disk;
mod delivery;
mod eksctl;
mod first_boot;
mod former_life;
mod gate;
mod hooks;
mod image;
mod interruption;
mod package;
mod package_dnf;
mod package_interruption;
mod package_signature;
mod platform;
mod reboot;
mod refusal;
mod support;
mod sysext;
mod sysext_interruption;
mod told;
mod torcx;
mod torcx_interruption;
mod tree;
mod walks;
