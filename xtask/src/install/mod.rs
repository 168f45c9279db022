//! Installs what the checks need and the machine lacks: Rust components by rustup, programs by apt-get, servers and clients from PyPI.
//!
//! What cannot be installed is an error that says what to do. Nothing is skipped because it is absent. No service is started by it: tests
//! start servers of their own, on ports of their own.

mod python;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use crate::shell;

/// What a test needs, and the Debian package that has it.
struct Need {
    sought: Sought,
    package: &'static str,
    what_for: &'static str,
}

/// How to see whether it is there.
enum Sought {
    /// A program of this name on the `PATH`.
    Program(&'static str),
    /// A file at this path: Debian keeps it off the `PATH`, or another one of the same name may stand there.
    File(&'static str),
    /// A module that Debian's Python can import.
    Module(&'static str),
}

/// Debian has one version of each, which changes only by repairs; where the major one is in the package's name, it is pinned here.
const NEEDS: &[Need] = &[
    Need { sought: Sought::Program("chromium"), package: "chromium", what_for: "the report's test loads it in a real browser" },
    Need { sought: Sought::Program("chromedriver"), package: "chromium-driver", what_for: "drives that browser" },
    Need { sought: Sought::File("/usr/bin/etcd"), package: "etcd-server", what_for: "an engine to elect on" },
    Need { sought: Sought::File("/usr/bin/etcdctl"), package: "etcd-client", what_for: "contends with ours for one seat" },
    Need { sought: Sought::File("/usr/bin/redis-server"), package: "redis-server", what_for: "an engine to elect on" },
    Need { sought: Sought::Program("java"), package: "default-jre-headless", what_for: "runs ZooKeeper" },
    // Not the package zookeeper: that adds scripts, and a desktop's Java.
    Need {
        sought: Sought::File("/usr/share/java/zookeeper.jar"),
        package: "libzookeeper-java",
        what_for: "an engine to elect on",
    },
    Need {
        sought: Sought::File("/usr/lib/postgresql/15/bin/postgres"),
        package: "postgresql-15",
        what_for: "an engine to elect on",
    },
    Need {
        sought: Sought::File("/usr/sbin/pgbouncer"),
        package: "pgbouncer",
        what_for: "stands between a client and PostgreSQL",
    },
    Need {
        sought: Sought::Program("setpriv"),
        package: "util-linux",
        what_for: "lets a server die with the test that started it",
    },
    Need { sought: Sought::Program("ip"), package: "iproute2", what_for: "networks of the tests' own" },
    Need { sought: Sought::File("/usr/sbin/mkfs.ext4"), package: "e2fsprogs", what_for: "disks that hang, fill up and fail" },
    Need { sought: Sought::Program("perl"), package: "perl-base", what_for: "cuts the power of a file system" },
    Need {
        sought: Sought::File("/usr/sbin/fence_dummy"),
        package: "fence-agents",
        what_for: "an agent for `incumbent run --fence` that needs no hardware",
    },
    Need { sought: Sought::File("/lib/systemd/systemd"), package: "systemd", what_for: "runs the unit of the examples" },
    Need { sought: Sought::File("/usr/sbin/haproxy"), package: "haproxy", what_for: "a load balancer that asks who leads" },
    Need { sought: Sought::Module("ensurepip"), package: "python3-venv", what_for: "holds what comes from PyPI" },
];

impl Sought {
    fn is_there(&self) -> bool {
        match self {
            Sought::Program(name) => shell::exists(name),
            Sought::File(path) => Path::new(path).is_file(),
            Sought::Module(name) => {
                Command::new(python::PYTHON).args(["-c", &format!("import {name}")]).output().is_ok_and(|it| it.status.success())
            }
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Sought::Program(name) | Sought::File(name) | Sought::Module(name) => name,
        }
    }
}

/// The parts of a Rust toolchain that its minimal profile leaves out.
const COMPONENTS: &[(&str, &str)] = &[("cargo-fmt", "rustfmt"), ("cargo-clippy", "clippy")];

/// Makes sure that all is there.
pub(crate) fn run() -> Result<(), String> {
    for (program, component) in COMPONENTS {
        if works(program) {
            continue;
        }
        if !shell::exists("rustup") {
            return Err(format!(
                "{component} is missing and there is no rustup to add it: install the Rust toolchain's {component}"
            ));
        }
        shell::run(Command::new("rustup").args(["component", "add", component]))?;
        if !works(program) {
            return Err(format!("rustup has added {component}, but {program} still does not run: repair the Rust toolchain"));
        }
    }
    let missing: Vec<&Need> = NEEDS.iter().filter(|need| !need.sought.is_there()).collect();
    if !missing.is_empty() {
        packages(&missing)?;
    }
    python::run()?;
    println!("nothing is missing");
    Ok(())
}

/// Installs the packages of what is missing.
fn packages(missing: &[&Need]) -> Result<(), String> {
    for need in missing {
        println!("{} is missing ({}): installing {}", need.sought.name(), need.what_for, need.package);
    }
    let packages: Vec<&str> = missing.iter().map(|need| need.package).collect();
    let rights = rights(shell::exists("apt-get"), is_root(), shell::exists("sudo"))
        .map_err(|why| format!("{why}; install these packages yourself: {}", packages.join(" ")))?;
    let path = format!("DPkg::Path={}:/usr/sbin:/usr/bin:/sbin:/bin", silence()?);
    // A fresh machine has no package lists, and old ones name packages that are gone.
    shell::run(apt_get(&rights).args(["update", "-q"]))?;
    shell::run(apt_get(&rights).args(["-o", &path, "install", "-y", "-q", "--no-install-recommends"]).args(&packages))?;
    match missing.iter().find(|need| !need.sought.is_there()) {
        Some(need) => Err(format!("the package {} is installed, but there is no {}", need.package, need.sought.name())),
        None => Ok(()),
    }
}

/// What packages call to have their services started, now and at the next boot.
const STARTERS: [&str; 4] = ["invoke-rc.d", "deb-systemd-invoke", "deb-systemd-helper", "update-rc.d"];

/// A folder with programs of those names that do nothing. dpkg looks there first, in this one run: the machine's own stay as they are,
/// and so does its policy about services.
fn silence() -> Result<String, String> {
    let folder = shell::root().join("target/silence");
    let failed = |wrong: std::io::Error| format!("cannot make {}: {wrong}", folder.display());
    fs::create_dir_all(&folder).map_err(failed)?;
    for name in STARTERS {
        let program = folder.join(name);
        fs::write(&program, "#!/bin/sh\nexit 0\n").map_err(failed)?;
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).map_err(failed)?;
    }
    Ok(folder.display().to_string())
}

/// How apt-get gets the rights to install.
#[derive(Debug, PartialEq, Eq)]
enum Rights {
    Own,
    Sudo,
}

fn rights(apt_get: bool, root: bool, sudo: bool) -> Result<Rights, &'static str> {
    match (apt_get, root, sudo) {
        (false, _, _) => Err("there is no apt-get on this machine"),
        (true, true, _) => Ok(Rights::Own),
        (true, false, true) => Ok(Rights::Sudo),
        (true, false, false) => Err("apt-get needs root, and there is no sudo"),
    }
}

fn apt_get(rights: &Rights) -> Command {
    let mut command = match rights {
        Rights::Own => Command::new("apt-get"),
        Rights::Sudo => {
            let mut command = Command::new("sudo");
            // sudo clears the environment, so what must reach apt-get is said behind it.
            command.args(["DEBIAN_FRONTEND=noninteractive", "apt-get"]);
            command
        }
    };
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command
}

/// Whether a part of the toolchain runs: rustup leaves its name in place when the part is absent.
fn works(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

fn is_root() -> bool {
    shell::output(Command::new("id").arg("-u")).is_ok_and(|id| id.trim() == "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_installed_is_an_error() {
        assert_eq!(rights(true, true, false), Ok(Rights::Own));
        assert_eq!(rights(true, false, true), Ok(Rights::Sudo));
        assert!(rights(true, false, false).unwrap_err().contains("root"));
        assert!(rights(false, true, true).unwrap_err().contains("no apt-get"));
    }

    #[test]
    fn apt_get_is_never_asked_a_question() {
        for rights in [Rights::Own, Rights::Sudo] {
            let command = apt_get(&rights);
            assert!(command.get_envs().any(|(name, _)| name == "DEBIAN_FRONTEND"));
        }
        assert!(apt_get(&Rights::Sudo).get_args().any(|it| it == "DEBIAN_FRONTEND=noninteractive"));
    }
}
