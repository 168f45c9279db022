//! A file system of its own in a file, mounted where a node keeps what it must not forget: it hangs, fills up, fails, and loses power.
//!
//! Mounting takes root itself: a user namespace cannot do it. It is unmounted with the namespace of the test, and the loop device goes with it.

use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Written behind what the system takes at once, in case that is not all. More is never left then.
const LAST_BLOCKS: usize = 8192;

/// The file that takes the room.
const RUBBISH: &str = "rubbish";

/// The kernel's own power cut, for tests of file systems: nothing that it still holds is written, and everything from now on is refused (EXT4_IOC_SHUTDOWN with NOLOGFLUSH; the number
/// is that of amd64 and arm64).
const POWER_CUT: &str =
    "open(my $disk, '<', $ARGV[0]) or die $!; my $how = pack('L', 2); defined(ioctl($disk, 0x8004587d, $how)) or die $!";

pub(crate) struct Disk {
    folder: PathBuf,
    image: PathBuf,
}

impl Disk {
    /// A new one of this size, which is mounted on a folder that is made for it.
    #[track_caller]
    pub(crate) fn new(folder: PathBuf, image: PathBuf, bytes: u64) -> Disk {
        fs::create_dir(&folder).unwrap();
        fs::File::create(&image).unwrap().set_len(bytes).unwrap();
        run(Command::new("mkfs.ext4").args(["-q", "-m", "0"]).arg(&image));
        let disk = Disk { folder, image };
        disk.mount();
        disk
    }

    #[track_caller]
    fn mount(&self) {
        run(Command::new("mount").args(["-o", "loop,errors=remount-ro"]).arg(&self.image).arg(&self.folder));
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Whoever writes to it stands still until the answer is dropped. Should the test be killed, its end of the pipe goes, and the disk comes back too.
    #[track_caller]
    pub(crate) fn hang(&self) -> Hanging {
        let script = "fsfreeze --freeze \"$1\" && echo hangs && read -r _; fsfreeze --unfreeze \"$1\"";
        let mut process = Command::new("sh")
            .args(["-c", script, "sh"])
            .arg(&self.folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = [0; 6];
        process.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
        assert_eq!(&said, b"hangs\n");
        Hanging { process }
    }

    /// Takes all the room there is.
    #[track_caller]
    pub(crate) fn fill(&self) {
        let path = self.folder.join(RUBBISH);
        // It takes what there is, and says that this was not enough.
        let taken = Command::new("fallocate").args(["--length", "1TiB"]).arg(&path).output().unwrap();
        assert!(!taken.status.success(), "it has more room than it should");
        let mut file = fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
        let full = std::iter::repeat_with(|| file.write_all(&[7; 4096])).take(LAST_BLOCKS).find_map(Result::err);
        assert_eq!(full.expect("it is smaller than that").kind(), ErrorKind::StorageFull);
    }

    /// Gives back what was taken.
    #[track_caller]
    pub(crate) fn make_room(&self) {
        fs::remove_file(self.folder.join(RUBBISH)).unwrap();
    }

    /// It finds an error in itself: whatever is written from now on is refused.
    #[track_caller]
    pub(crate) fn fail(&self) {
        let output = Command::new("findmnt").args(["-no", "SOURCE"]).arg(&self.folder).output().unwrap();
        let device = String::from_utf8(output.stdout).unwrap();
        let device = device.trim().trim_start_matches("/dev/");
        fs::write(format!("/sys/fs/ext4/{device}/trigger_fs_error"), "by the test").unwrap();
    }

    /// It is as if it had no power: what was not made safe is gone, and nothing can be read or written (EIO).
    #[track_caller]
    pub(crate) fn cut_power(&self) {
        run(Command::new("perl").args(["-e", POWER_CUT]).arg(&self.folder));
    }

    /// It is mounted anew, with what it had made safe. Nobody may have a file open on it.
    #[track_caller]
    pub(crate) fn mount_again(&self) {
        run(Command::new("umount").arg(&self.folder));
        self.mount();
    }
}

/// Nobody should have a file open on it by now. If somebody has, it goes with the namespace of the test.
impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.folder).output();
    }
}

/// A disk that hangs.
pub(crate) struct Hanging {
    process: Child,
}

impl Drop for Hanging {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

#[track_caller]
fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|why| panic!("cannot run {command:?}: {why}"));
    assert!(
        output.status.success(),
        "{command:?}: {}(file systems are mounted by root alone: run the tests as root)",
        String::from_utf8_lossy(&output.stderr)
    );
}
