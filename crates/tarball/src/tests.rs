//! Members come back as they were written; damage is an error, and nothing else.

use proptest::prelude::*;

use super::*;

/// The archive of one member whose data are its offsets.
fn archive(members: &[Member]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for member in members {
        bytes.extend(lead(member).unwrap());
        bytes.extend((0..member.stored_bytes()).map(|at| at as u8));
        bytes.resize(bytes.len() + padding(member), 0);
    }
    bytes.resize(bytes.len() + end(bytes.len() as u64), 0);
    bytes
}

/// All members, with their data; the error that ended the reading, if one did.
fn read(bytes: &[u8]) -> (Vec<(Member, Vec<u8>)>, Option<base::Error>) {
    let mut reader = Reader::new(bytes);
    let mut all = Vec::new();
    loop {
        let member = match reader.next() {
            Ok(Some(member)) => member,
            Ok(None) => return (all, None),
            Err(error) => return (all, Some(error)),
        };
        let mut data = vec![0; member.stored_bytes().min(1 << 20) as usize];
        match reader.data(&mut data) {
            Ok(read) => data.truncate(read),
            Err(error) => return (all, Some(error)),
        }
        all.push((member, data));
    }
}

fn kinds() -> impl Strategy<Value = Kind> {
    use Kind::{BlockDevice, CharDevice, Directory, Fifo, File, Link, Symlink};
    prop::sample::select(vec![
        File,
        Link,
        Symlink,
        CharDevice,
        BlockDevice,
        Directory,
        Fifo,
    ])
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    let part = prop::collection::vec(1u8..=255, 1..120);
    prop::collection::vec(part, 1..4).prop_map(|parts| {
        let name = parts.join(&b'/');
        // A slash at its end makes a file a directory.
        [&name[..], b"x"].concat()
    })
}

fn map() -> impl Strategy<Value = (Vec<(u64, u64)>, u64)> {
    let extents = prop::collection::vec((1u64..1 << 35, 1u64..2000), 0..40);
    (extents, 0u64..1 << 30).prop_map(|(extents, tail)| {
        let mut at = 0;
        let mut map = Vec::new();
        for (hole, length) in extents {
            map.push((at + hole, length));
            at += hole + length;
        }
        (map, at + tail)
    })
}

prop_compose! {
    fn member()(
        kind in kinds(),
        name in name(),
        link in name(),
        (mode, device) in (0u32..0o10000, (0u32..4096, 0u32..1 << 20)),
        owner in (prop_oneof![0u64..70_000, 0u64..1 << 32], prop_oneof![0u64..70_000, 0u64..1 << 32]),
        (user, group) in ("[a-z]{0,40}", "[a-z]{0,40}"),
        mtime in (prop_oneof![0i64..1 << 33, i64::MIN / 4..i64::MAX / 4], 0u32..1_000_000_000),
        xattrs in prop::collection::vec((prop::collection::vec(1u8..=255, 1..20),
            prop::collection::vec(any::<u8>(), 0..700)), 0..3),
        acl in prop::option::of("[a-z:,-]{1,90}"),
        (map, size) in prop_oneof![map(), (0u64..3000).prop_map(|size| match size {
            0 => (Vec::new(), 0),
            _ => (vec![(0, size)], size),
        })],
    ) -> Member {
        let is_link = matches!(kind, Kind::Link | Kind::Symlink);
        let is_device = matches!(kind, Kind::CharDevice | Kind::BlockDevice);
        let mut member = Member::new(&name, kind);
        (member.mode, member.mtime, member.xattrs) = (mode, mtime, xattrs);
        (member.uid, member.gid) = owner;
        (member.user, member.group) = (user.into_bytes(), group.into_bytes());
        member.acls[1] = acl.map(String::into_bytes);
        if is_link {
            member.link = link;
        }
        if is_device {
            member.device = device;
        }
        if kind == Kind::File {
            (member.map, member.size) = (map, size);
        }
        member
    }
}

proptest! {
    #[test]
    fn prop_members_come_back(members in prop::collection::vec(member(), 1..5)) {
        let (read, error) = read(&archive(&members));
        prop_assert!(error.is_none(), "{error:?}");
        for (member, data) in &read {
            prop_assert!(data.iter().enumerate().all(|(at, byte)| *byte == at as u8));
            prop_assert_eq!(data.len() as u64, member.stored_bytes());
        }
        let read: Vec<Member> = read.into_iter().map(|(member, _)| member).collect();
        prop_assert_eq!(read, members);
    }

    /// Whatever is damaged, what is read ends, and no member says more than the archive has.
    #[test]
    fn prop_damage_is_an_error_or_seen_in_a_name(
        members in prop::collection::vec(member(), 1..4),
        wounds in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        is_mended in any::<bool>(),
    ) {
        let mut bytes = archive(&members);
        for (at, byte) in wounds {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if is_mended {
            mend(&mut bytes);
        }
        let length = bytes.len() as u64;
        for (member, data) in read(&bytes).0 {
            prop_assert!(data.len() as u64 <= length);
            prop_assert!(member.map.iter().all(|(at, len)| at + len <= member.size));
        }
    }

    /// An archive that is cut off ends in an error, unless it is cut between members.
    #[test]
    fn prop_a_part_of_an_archive_is_a_part_of_its_members(
        members in prop::collection::vec(member(), 1..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let bytes = archive(&members);
        let mut between = vec![0..=0];
        for member in &members {
            let begin = *between.last().unwrap().end();
            let ends = begin + lead(member).unwrap().len() + member.stored_bytes() as usize;
            between.push(ends..=ends + padding(member));
        }
        let cut = cut.index(*between.last().unwrap().end());
        let (read, error) = read(&bytes[..cut]);
        let is_between = between.iter().any(|between| between.contains(&cut));
        prop_assert_eq!(error.is_none(), is_between, "cut at {}: {:?}", cut, error);
        let whole = between.iter().filter(|between| cut >= *between.start()).count() - 1;
        let read: Vec<Member> = read.into_iter().map(|(member, _)| member).collect();
        prop_assert_eq!(&read[..], &members[..whole]);
    }
}

/// Sets the sums of what may be headers, so that the damage in them is met.
fn mend(bytes: &mut [u8]) {
    for block in bytes.chunks_exact_mut(512) {
        if &block[257..262] == b"ustar" {
            block[148..156].fill(b' ');
            let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
            block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        }
    }
}

#[test]
fn times_are_exact() {
    for (text, time) in [
        ("0", (0, 0)),
        ("12.5", (12, 500_000_000)),
        ("-12.5", (-13, 500_000_000)),
        ("-0.000000001", (-1, 999_999_999)),
        ("1.1234567891", (1, 123_456_789)),
        ("7.", (7, 0)),
    ] {
        assert_eq!(pax::time(text.as_bytes()), Some(time), "{text}");
        let again = pax::time(pax::time_text(time).as_bytes());
        assert_eq!(again, Some(time), "{text}");
    }
    for wrong in ["", "-", "1.x", "x", "--1", "1e3", "99999999999999999999"] {
        assert_eq!(pax::time(wrong.as_bytes()), None, "{wrong}");
    }
}

#[test]
fn what_is_not_an_archive_is_said_to_be_none() {
    let said = |bytes: &[u8]| read(bytes).1.map(|error| error.context().to_owned());
    assert_eq!(said(b""), None);
    assert_eq!(said(b"short").as_deref(), Some(NOT_TAR));
    assert_eq!(said(&[7; 2048]).as_deref(), Some(NOT_TAR));
    let mut member = Member::new(b"file", Kind::File);
    (member.size, member.map) = (1000, vec![(0, 1000)]);
    let bytes = archive(&[member]);
    assert_eq!(said(&bytes[..1200]).as_deref(), Some(EARLY_END));
    assert_eq!(said(&bytes[..1536]), None);
}
