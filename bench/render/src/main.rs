//! How many node configs a second: renders many different groups of one cluster, once for each line on standard input.
//!
//! Reads lines `WORK COUNT`; answers each with one line of JSON: wall and processor time, bytes, a digest over all outputs.
//! `bench/run` starts it beside its peer and asks both in turn. With `--spec COUNT` it prints the spec instead, with
//! `--cloud-config COUNT` the user data of the last group. Exit code 1: something was rendered wrongly or not at all.

#![allow(clippy::disallowed_methods, clippy::print_stdout)] // A benchmark reads clocks and talks to its caller.

mod fleet;
mod work;

use std::io::{BufRead as _, Write as _};

use anyhow::{Context as _, Result, bail};

/// As in the binary that people run.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        [] => answer(),
        ["--spec", count] => {
            for source in fleet::texts(count.parse().context("COUNT is a number")?) {
                print!("{source}");
            }
            Ok(())
        }
        ["--cloud-config", count] => {
            print!("{}", work::cloud_config(count.parse().context("COUNT is a number")?)?);
            Ok(())
        }
        _ => bail!("usage: bench-render [--spec COUNT | --cloud-config COUNT]"),
    }
}

fn answer() -> Result<()> {
    let mut fleets = work::Fleets::default();
    for line in std::io::stdin().lock().lines() {
        let line = line.context("reading what to do")?;
        let (work, count) = line.split_once(' ').context("a line is WORK and COUNT")?;
        let measured = fleets.measure(work, count.parse().context("COUNT is a number")?)?;
        println!("{measured}");
        std::io::stdout().flush().context("answering")?;
    }
    Ok(())
}
