//! Makes the client of etcd's API out of `proto/etcd.proto`, if the feature asks for it. Needs no protoc.
// Cargo listens there.
#![allow(clippy::print_stdout)]

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "etcd")]
    etcd();
}

#[cfg(feature = "etcd")]
fn etcd() {
    println!("cargo::rerun-if-changed=proto/etcd.proto");
    let described = protox::compile(["etcd.proto"], ["proto"]).expect("proto/etcd.proto is well formed");
    tonic_prost_build::configure()
        .build_server(false)
        .emit_rerun_if_changed(false)
        .compile_fds(described)
        .expect("cargo gives build scripts a folder to write to");
}
