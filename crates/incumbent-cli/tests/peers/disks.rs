//! Disks that hang, fill up and fail under a node while its network is fine (C10, C46, C47): a file system of its own in a file, mounted where the node keeps what it must not forget.
//!
//! Mounting takes root itself: a user namespace cannot do it.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::apart::apart;
use crate::world::{Group, World, nanos, now};

/// The file system under a node's data. Unmounted with the namespace of the test.
struct Disk {
    folder: PathBuf,
}

impl Disk {
    /// One for a node that has not been started.
    #[track_caller]
    fn under(world: &World, id: u32) -> Disk {
        let (folder, image) = (world.data(id), world.path(&format!("disk-{id}")));
        fs::create_dir(&folder).unwrap();
        fs::File::create(&image).unwrap().set_len(16 << 20).unwrap();
        run(Command::new("mkfs.ext4").arg("-q").arg(&image));
        run(Command::new("mount").args(["-o", "loop,errors=remount-ro"]).arg(&image).arg(&folder));
        Disk { folder }
    }

    /// Whoever writes to it stands still until the answer is dropped. Should the test be killed, its end of the pipe goes, and the disk comes back too.
    #[track_caller]
    fn hang(&self) -> Hanging {
        let script = "fsfreeze --freeze \"$1\" && echo hangs && read -r _; fsfreeze --unfreeze \"$1\"";
        let mut process = Command::new("sh")
            .args(["-c", script, "sh"])
            .arg(&self.folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = [0; 6];
        std::io::Read::read_exact(process.stdout.as_mut().unwrap(), &mut said).unwrap();
        assert_eq!(&said, b"hangs\n");
        Hanging { process }
    }

    /// Takes all the room there is.
    #[track_caller]
    fn fill(&self) {
        let mut file = fs::File::create(self.folder.join("rubbish")).unwrap();
        let full = std::iter::repeat_with(|| std::io::Write::write_all(&mut file, &[7; 4096])).take(8192).find_map(Result::err);
        assert_eq!(full.expect("it is smaller than that").kind(), std::io::ErrorKind::StorageFull);
    }

    /// It fails: whatever is written from now on is refused.
    #[track_caller]
    fn fail(&self) {
        let output = Command::new("findmnt").args(["-no", "SOURCE"]).arg(&self.folder).output().unwrap();
        let device = String::from_utf8(output.stdout).unwrap();
        let device = device.trim().trim_start_matches("/dev/");
        fs::write(format!("/sys/fs/ext4/{device}/trigger_fs_error"), "by the test").unwrap();
    }
}

/// A disk that hangs.
struct Hanging {
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

/// A group whose nodes have a disk each, and one of which leads.
fn on_disks(group: Group) -> (World, Vec<Disk>) {
    let mut world = group.at_rest();
    let disks = world.ids().into_iter().map(|id| Disk::under(&world, id)).collect();
    world.start_all();
    world.agreed();
    (world, disks)
}

fn of(disks: &[Disk], id: u32) -> &Disk {
    &disks[id as usize - 1]
}

#[test]
fn c10_a_leader_whose_disk_hangs_is_replaced_though_its_network_is_fine() {
    apart(|| {
        let (mut world, disks) = on_disks(Group::of(3));
        let (leader, term) = world.leader();
        let hanging = of(&disks, leader).hang();
        let (next, later) = world.leader_after(term);
        assert_ne!(next, leader);
        assert!(world.scene.left_office(leader, term).is_some(), "{}", world.told());
        drop(hanging);
        world.heal();
        world.settles();
        assert!(world.scene.term() >= later);
    });
}

#[test]
fn c10_a_follower_whose_disk_hangs_costs_nothing() {
    apart(|| {
        let (mut world, disks) = on_disks(Group::calm(3));
        let (leader, term) = world.leader();
        let follower = world.ids().into_iter().find(|it| *it != leader).unwrap();
        let hanging = of(&disks, follower).hang();
        world.watch(world.patience(3));
        drop(hanging);
        world.heal();
        assert_eq!(world.settles(), leader);
        assert_eq!(world.scene.term(), term, "{}", world.told());
    });
}

#[test]
fn c47_a_full_disk_costs_no_vote_and_no_office() {
    apart(|| {
        let (mut world, disks) = on_disks(Group::of(3));
        disks.iter().for_each(Disk::fill);
        let (leader, term) = world.leader();
        world.kill(leader);
        let (next, later) = world.leader_after(term);
        assert_ne!(next, leader);
        assert!(later > term);
        world.heal();
        world.settles();
    });
}

#[test]
fn c46_a_node_whose_disk_fails_ends_and_says_so_and_the_others_elect() {
    apart(|| {
        let (mut world, disks) = on_disks(Group::of(3));
        let (leader, term) = world.leader();
        of(&disks, leader).fail();
        let began = now();
        while world.process(leader).process().runs() {
            assert!(now() - began < nanos(world.longest()), "it still runs\n{}", world.told());
            world.watch(world.patience(1) / 4);
        }
        let log = world.log(leader);
        world.has_ended(leader);
        assert!(log.contains("check the disk, then start it again"), "{log}");
        let (next, _) = world.leader_after(term);
        assert_ne!(next, leader);
        world.judge();
    });
}
