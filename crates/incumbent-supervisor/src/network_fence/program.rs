//! The filter itself: thirteen instructions that the kernel runs for each packet, written here by hand so that nobody needs a compiler for
//! them, and put in the object file that the loader reads.
//!
//! In words: look up the deadline, then read the clock, and let the packet pass if the clock is before the deadline. In this order a packet
//! that is held up in between meets a clock that is later, never a deadline that is.

use std::fs::File;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;

use aya::maps::{Array, MapData};
use aya::programs::links::FdLink;
use aya::programs::{CgroupAttachMode, CgroupSkb, CgroupSkbAttachType, TestRun, TestRunOptions};
use aya::{Ebpf, EbpfLoader, VerifierLogLevel};
use incumbent_protocol::time::Instant;
use object::write::{Object, Relocation, SectionId, Symbol, SymbolSection};
use object::{
    Architecture, BinaryFormat, Endianness, RelocationEncoding, RelocationFlags, RelocationKind, SectionKind, SymbolFlags,
    SymbolKind, SymbolScope,
};

use super::Error;
use crate::clock;

const PROGRAM: &str = "network_fence";
const MAP: &str = "deadline";

/// A loader reads the types of the whole kernel when it is made: some 50 ms and 20 MB, for nothing that we use. So it is made once, and forgets
/// them at once.
static LOADER: LazyLock<Mutex<EbpfLoader<'static>>> = LazyLock::new(|| {
    let mut loader = EbpfLoader::new();
    loader.btf(None).verifier_log_level(VerifierLogLevel::DISABLE);
    Mutex::new(loader)
});

/// The filter in the kernel, attached to nothing yet.
pub(super) struct Program(Ebpf);

/// The deadline that the filter reads.
pub(super) struct Deadline(Array<MapData, u64>);

/// Brings the filter and its deadline into the kernel, which checks it, and sees that it goes by our clock. The deadline is past afterwards.
pub(super) fn load() -> Result<(Program, Deadline), Error> {
    let step = "load the eBPF filter";
    let object = object_file().map_err(|error| Error::foreign(step, &error))?;
    // It is only read: whoever panicked over it left it whole.
    let loaded = LOADER.lock().unwrap_or_else(PoisonError::into_inner).load(&object);
    let mut ebpf = loaded.map_err(|error| Error::foreign(step, &error))?;
    filter(&mut ebpf).load().map_err(|error| Error::foreign(step, &error))?;
    let map = ebpf.take_map(MAP).expect("the object file has the map");
    let deadline = Array::try_from(map).map_err(|error| Error::foreign(step, &error))?;
    let (mut program, mut deadline) = (Program(ebpf), Deadline(deadline));
    // In a time namespace our clock is shifted and the filter's is not. Where ours is ahead a deadline would come too late: the last try,
    // whose deadline has passed by the time it is read, finds the smallest shift.
    deadline.set(clock::now() + TRIAL)?;
    let passed = program.passes_a_packet()?;
    deadline.set(clock::now())?;
    if passed && !program.passes_a_packet()? { Ok((program, deadline)) } else { Err(Error::OtherClock) }
}

/// Longer than loading is held up on a machine that is good for anything.
const TRIAL: Duration = Duration::from_secs(60);

impl Program {
    /// The filter's verdict now, on a packet that goes nowhere.
    fn passes_a_packet(&mut self) -> Result<bool, Error> {
        let packet = [0; 64];
        let options = TestRunOptions { data_in: Some(&packet), ..TestRunOptions::new() };
        let verdict = filter(&mut self.0).test_run(options).map_err(|error| Error::foreign("try the eBPF filter", &error))?;
        Ok(verdict.return_value == 1)
    }

    /// In force from here on, and until the last descriptor and pin of the link is gone.
    pub(super) fn attach(mut self, cgroup: &File) -> Result<FdLink, Error> {
        let step = "attach the eBPF filter to the cgroup (a program on a cgroup above may also forbid it)";
        let filter = filter(&mut self.0);
        // Whatever the name of the mode says: a link stands beside the links of others, and each can only refuse.
        let attached = filter
            .attach(cgroup, CgroupSkbAttachType::Egress, CgroupAttachMode::Single)
            .map_err(|error| Error::foreign(step, &error))?;
        let link = filter.take_link(attached).map_err(|error| Error::foreign(step, &error))?;
        // Before Linux 5.7 there are no links.
        FdLink::try_from(link).map_err(|_| Error::OldKernel { step: step.to_owned() })
    }
}

impl Deadline {
    pub(super) fn set(&mut self, until: Instant) -> Result<(), Error> {
        self.0.set(0, until.as_nanos(), 0).map_err(|error| Error::foreign("set the deadline", &error))
    }
}

fn filter(ebpf: &mut Ebpf) -> &mut CgroupSkb {
    let program = ebpf.program_mut(PROGRAM).expect("the object file has the program");
    program.try_into().expect("its section says that it filters packets of a cgroup")
}

/// Registers, by the part they play in the calling convention of eBPF.
const RESULT: u8 = 0;
const FIRST_ARGUMENT: u8 = 1;
const SECOND_ARGUMENT: u8 = 2;
const KEPT: u8 = 6;
const FRAME: u8 = 10;

/// Helpers of the kernel, by their numbers.
const MAP_LOOKUP_ELEM: i32 = 1;
const KTIME_GET_BOOT_NS: i32 = 125;

/// Bytes of an instruction.
const SLOT: usize = 8;

/// Where the loader puts the map's address: the fourth instruction, in bytes.
const MAP_ADDRESS_AT: u64 = 3 * SLOT as u64;

/// From a packet to 1 (it passes) or 0 (it is dropped, and the sender is told EPERM).
fn instructions() -> Vec<u8> {
    [
        // The key, 0, on the stack, and its address.
        instruction(0x62, FRAME, 0, -4, 0),
        instruction(0xbf, SECOND_ARGUMENT, FRAME, 0, 0),
        instruction(0x07, SECOND_ARGUMENT, 0, 0, -4),
        // The map's address, which is twice as wide as others.
        instruction(0x18, FIRST_ARGUMENT, 0, 0, 0),
        instruction(0x00, 0, 0, 0, 0),
        instruction(0x85, 0, 0, 0, MAP_LOOKUP_ELEM),
        // Not found: drop. It is always found, but the verifier does not know that.
        instruction(0x15, RESULT, 0, 5, 0),
        instruction(0x79, KEPT, RESULT, 0, 0),
        instruction(0x85, 0, 0, 0, KTIME_GET_BOOT_NS),
        // The clock at or after the deadline: drop.
        instruction(0x3d, RESULT, KEPT, 2, 0),
        instruction(0xb7, RESULT, 0, 0, 1),
        instruction(0x95, 0, 0, 0, 0),
        instruction(0xb7, RESULT, 0, 0, 0),
        instruction(0x95, 0, 0, 0, 0),
    ]
    .concat()
}

/// One slot as the kernel has it: in the machine's own byte order, the registers as two halves of a byte in the order of its bit fields.
fn instruction(code: u8, to: u8, from: u8, offset: i16, value: i32) -> [u8; SLOT] {
    let registers = if cfg!(target_endian = "little") { from << 4 | to } else { to << 4 | from };
    let ([offset_0, offset_1], [value_0, value_1, value_2, value_3]) = (offset.to_ne_bytes(), value.to_ne_bytes());
    [code, registers, offset_0, offset_1, value_0, value_1, value_2, value_3]
}

/// The object file as a compiler would have made it: the program, its map, and the place where the one refers to the other.
fn object_file() -> Result<Vec<u8>, object::write::Error> {
    let endianness = if cfg!(target_endian = "little") { Endianness::Little } else { Endianness::Big };
    let mut object = Object::new(BinaryFormat::Elf, Architecture::Bpf, endianness);

    let license = object.add_section(Vec::new(), b"license".to_vec(), SectionKind::Data);
    object.append_section_data(license, LICENSE, 1);

    // Kind, size of key and value in bytes, number of entries, flags.
    let definition = [BPF_MAP_TYPE_ARRAY, 4, 8, 1, 0].map(u32::to_ne_bytes).concat();
    let maps = object.add_section(Vec::new(), b"maps".to_vec(), SectionKind::Data);
    object.append_section_data(maps, &definition, 4);
    let map = object.add_symbol(symbol(MAP, SymbolKind::Data, maps, &definition));

    let code = instructions();
    let text = object.add_section(Vec::new(), b"cgroup_skb/egress".to_vec(), SectionKind::Text);
    object.append_section_data(text, &code, 8);
    object.add_symbol(symbol(PROGRAM, SymbolKind::Text, text, &code));
    let place = Relocation {
        offset: MAP_ADDRESS_AT,
        symbol: map,
        addend: 0,
        flags: RelocationFlags::Generic { kind: RelocationKind::Absolute, encoding: RelocationEncoding::Generic, size: 64 },
    };
    object.add_relocation(text, place)?;
    object.write()
}

fn symbol(name: &str, kind: SymbolKind, section: SectionId, content: &[u8]) -> Symbol {
    Symbol {
        name: name.as_bytes().to_vec(),
        value: 0,
        size: content.len() as u64,
        kind,
        scope: SymbolScope::Dynamic,
        weak: false,
        section: SymbolSection::Section(section),
        flags: SymbolFlags::None,
    }
}

/// What the kernel is told; it hides some helpers from programs that do not say GPL, and none of ours.
const LICENSE: &[u8] = b"Apache-2.0 OR MIT\0";

const BPF_MAP_TYPE_ARRAY: u32 = 2;
