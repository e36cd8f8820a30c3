//! Regions, copies, and files that are not what they seem.

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

use super::*;

const PAGE: u64 = 4096;

fn file(pages: u64) -> OwnedFd {
    let file = memfd_create("guest", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("a memfd");
    ftruncate(&file, pages * PAGE).expect("memory for a few pages");
    file
}

fn place(guest: u64, pages: u64, offset: u64) -> RegionPlace {
    RegionPlace { guest, user: guest + (1 << 40), len: pages * PAGE, offset }
}

fn message<T: std::fmt::Debug>(result: Result<T, VhostError>) -> String {
    result.expect_err("it is refused").to_string()
}

#[test]
fn a_region_that_overlaps_another_is_refused() {
    let mut memory = GuestMemory::default();
    memory.add(place(8 * PAGE, 4, 0), &file(4)).expect("the first one");
    for guest in [5, 8, 11] {
        let error = message(memory.add(place(guest * PAGE, 4, 0), &file(4)));
        assert!(error.contains("overlaps the region at 0x8000"), "{error}");
    }
    let same_user = RegionPlace { guest: 0, ..place(8 * PAGE, 4, 0) };
    assert!(
        message(memory.add(same_user, &file(4))).contains("overlaps"),
        "the front end's addresses count, too"
    );
    for guest in [4, 12] {
        memory.add(place(guest * PAGE, 4, 0), &file(4)).expect("next to it");
    }
    assert_eq!(memory.regions(), 3);
}

#[test]
fn a_region_that_is_empty_or_wraps_around_is_refused() {
    let mut memory = GuestMemory::default();
    let end = u64::MAX - PAGE + 2;
    let whole = place(0, 1, 0);
    let bad = [
        RegionPlace { len: 0, ..whole },
        RegionPlace { guest: end, ..whole },
        RegionPlace { user: end, ..whole },
        RegionPlace { offset: end, ..whole },
    ];
    for place in bad {
        assert!(message(memory.add(place, &file(1))).contains("is empty or ends beyond 2^64"));
    }
}

#[test]
fn a_region_longer_than_its_file_is_refused() {
    let mut memory = GuestMemory::default();
    let error = message(memory.add(place(0, 2, PAGE), &file(2)));
    assert!(error.contains("needs 12288 bytes of its file, which has 8192"), "{error}");
}

#[test]
fn a_file_whose_server_could_stall_us_is_refused() {
    let mut memory = GuestMemory::default();
    let file = OwnedFd::from(std::fs::File::open("/proc/self/maps").expect("procfs"));
    assert!(message(memory.add(place(0, 1, 0), &file)).contains("only memfd, tmpfs and hugetlbfs"));
}

#[test]
fn a_file_that_may_not_be_written_is_refused() {
    let mut memory = GuestMemory::default();
    let file = file(1);
    fcntl_add_seals(&file, SealFlags::WRITE).expect("a memfd has seals");
    assert!(message(memory.add(place(0, 1, 0), &file)).contains("mapping 4096 bytes"));
}

#[test]
fn more_regions_than_a_message_can_carry_are_refused() {
    let mut memory = GuestMemory::default();
    let file = file(1);
    for index in 0..MAX_REGIONS as u64 {
        memory.add(place(2 * index * PAGE, 1, 0), &file).expect("one more");
    }
    let error = message(memory.add(place(1 << 30, 1, 0), &file));
    assert_eq!(error, "more than 32 memory regions");
}

#[test]
fn only_a_region_that_is_there_can_be_removed() {
    let mut memory = GuestMemory::default();
    memory.add(place(0, 2, 0), &file(2)).expect("a region");
    assert!(!memory.remove(place(0, 1, 0)), "this one is shorter");
    assert!(memory.remove(place(0, 2, PAGE)), "where it begins in its file is not compared");
    assert_eq!(memory.regions(), 0);
}

#[test]
fn a_buffer_may_lie_in_two_regions_that_touch_and_in_no_more_than_there_is() {
    let mut memory = GuestMemory::default();
    memory.add(place(PAGE, 1, PAGE), &file(2)).expect("a region");
    memory.add_heap(place(2 * PAGE, 1, 0)).expect("a region");
    assert!(memory.write(2 * PAGE - 3, b"forebay"));
    let mut read = [0; 7];
    assert!(memory.read(2 * PAGE - 3, &mut read));
    assert_eq!(&read, b"forebay");
    for outside in [PAGE - 1, 3 * PAGE - 6, 3 * PAGE, u64::MAX - 2] {
        assert!(!memory.read(outside, &mut read), "{outside:#x}");
    }
}

#[test]
fn two_mappings_of_a_file_show_the_same_bytes() {
    let file = file(4);
    let (mut one, mut two) = (GuestMemory::default(), GuestMemory::default());
    one.add(place(0, 4, 0), &file).expect("the whole file");
    two.add(place(0, 1, 2 * PAGE + 64), &file).expect("a part that begins inside of a page");
    assert!(one.write(2 * PAGE + 64, b"shared"));
    let mut read = [0; 6];
    assert!(two.read(0, &mut read));
    assert_eq!(&read, b"shared");
}

#[test]
fn a_file_that_is_truncated_under_a_copy_breaks_its_guest_alone() {
    let (victim, other) = (file(256), file(1));
    let (mut broken, mut fine) = (GuestMemory::default(), GuestMemory::default());
    broken.add(place(0, 256, 0), &victim).expect("a region");
    fine.add(place(0, 1, 0), &other).expect("a region");
    assert!(fine.write(0, b"kept"));
    assert!(broken.write(0, &vec![7; 256 * PAGE as usize]));
    let mut copy = vec![0; 256 * PAGE as usize];
    std::thread::scope(|scope| {
        scope.spawn(|| ftruncate(&victim, 0).expect("the front end may do so"));
        // Faults when the thread has truncated the file, be it in the middle of a copy.
        while !broken.is_broken() {
            assert!(broken.read(0, &mut copy));
        }
    });
    assert!(broken.write(0, b"there is memory to write to, which nobody reads"));
    let mut read = [0; 4];
    assert!(fine.read(0, &mut read) && !fine.is_broken());
    assert_eq!(&read, b"kept");
    drop(broken);
    let mut again = GuestMemory::default();
    again.add(place(0, 1, 0), &other).expect("a region");
    assert!(!again.is_broken(), "the next user of the slot starts anew");
}

#[test]
fn a_region_that_the_kernel_lends_needs_no_length_of_its_file() {
    let zeros: OwnedFd =
        std::fs::File::options().read(true).write(true).open("/dev/zero").expect("zeros").into();
    let mut memory = GuestMemory::default();
    let error = message(memory.add(place(0, 2, 0), &zeros));
    assert!(error.contains("file"), "a front end may lie about its file: {error}");
    memory.add_lent(place(0, 2, 0), &zeros).expect("the kernel does not lie");
    assert!(memory.write(PAGE - 2, b"four"), "across two pages");
    let mut read = [0; 4];
    assert!(memory.read(PAGE - 2, &mut read) && &read == b"four");
    assert!(message(memory.add_lent(place(PAGE, 2, 0), &zeros)).contains("overlaps"));
}
