//! Keeps the program's relocations packed, where the machine's libc can read them so: a list of all addresses in it, which every process would have in memory, becomes a few pages.
// Cargo listens there.
#![allow(clippy::print_stdout)]

use std::process::Command;

/// The first glibc that reads them.
const GLIBC_MIN: (u32, u32) = (2, 36);

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let native = std::env::var("HOST") == std::env::var("TARGET");
    if native && glibc().is_some_and(|it| it >= GLIBC_MIN) {
        // A linker that does not know it says so and goes on.
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// What programs that are built here will most likely run with; none if that is another libc, or if there is nobody to ask.
fn glibc() -> Option<(u32, u32)> {
    let told = Command::new("getconf").arg("GNU_LIBC_VERSION").output().ok()?;
    let told = String::from_utf8(told.stdout).ok()?;
    let mut numbers = told.trim().strip_prefix("glibc ")?.split('.').map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}
