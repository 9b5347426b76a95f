//! Names beside those that OpenZFS prepares.

use std::io::{Read, Write};
use std::process::{Command, Stdio};

use super::{CANONICAL, COMPATIBLE, COMPOSE, TO_UPPER, prepare};
use crate::crc64;

const ALL_FLAGS: [u64; 9] = [
    TO_UPPER,
    CANONICAL,
    CANONICAL | TO_UPPER,
    COMPATIBLE,
    COMPATIBLE | TO_UPPER,
    CANONICAL | COMPOSE,
    CANONICAL | COMPOSE | TO_UPPER,
    COMPATIBLE | COMPOSE,
    COMPATIBLE | COMPOSE | TO_UPPER,
];

/// CRC of what OpenZFS 2.3.2's `u8_textprep_str` makes of [`characters`].
const CHARACTERS: u64 = 0xab38_80fe_a7d5_3909;
/// The same of [`mixtures`].
const MIXTURES: u64 = 0xda41_f8a8_d8d9_cf7b;

/// Characters by themselves, and after a letter: all of the first planes that have letters and marks, and of those with
/// ideographs that have another form.
fn characters() -> impl Iterator<Item = Vec<u8>> {
    let all = ('\u{80}'..'\u{3400}')
        .chain('\u{a000}'..'\u{12000}')
        .chain('\u{1d000}'..'\u{1f000}');
    let all = all
        .chain('\u{2f800}'..'\u{2fa20}')
        .chain(('\u{3400}'..=char::MAX).step_by(97));
    all.flat_map(|c| [c.to_string().into_bytes(), format!("a{c}").into_bytes()])
}

/// Names of letters with marks, Korean letters and now and then bytes that make no character, from a fixed seed.
fn mixtures(count: u64) -> impl Iterator<Item = Vec<u8>> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut below = move |n: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % n
    };
    // First characters and how many follow; those that people write come first.
    const BLOCKS: [(u32, u64); 16] = [
        (0x20, 95),
        (0xc0, 0x180),
        (0x300, 0x70),
        (0x370, 0x190),
        (0x5b0, 0x30),
        (0x900, 0x500),
        (0x1100, 0x100),
        (0x1dc0, 0x40),
        (0x1e00, 0x200),
        (0x20d0, 0x20),
        (0x2100, 0x90),
        (0x3040, 0x60),
        (0xac00, 11172),
        (0xf900, 0x300),
        (0x1d150, 0x60),
        (0x300, 0x70),
    ];
    (0..count).map(move |_| {
        let mut name = Vec::new();
        let length = if below(20) == 0 { 60 } else { 1 + below(8) };
        let marks_alone = below(4) == 0;
        for _ in 0..length {
            if below(40) == 0 {
                name.push(0x80 | below(0x80) as u8);
                continue;
            }
            let (first, number) = match marks_alone && below(3) != 0 {
                true => BLOCKS[2],
                false => BLOCKS[below(16) as usize],
            };
            let c = char::from_u32(first + below(number) as u32).unwrap_or('x');
            name.extend_from_slice(c.to_string().as_bytes());
        }
        name
    })
}

/// The flags under which there may be such a name: where names are normalised they are UTF-8.
fn flags_of(name: &[u8]) -> impl Iterator<Item = u64> {
    let is_utf8 = std::str::from_utf8(name).is_ok();
    ALL_FLAGS
        .into_iter()
        .filter(move |flags| is_utf8 || *flags == TO_UPPER)
}

fn crc_of(names: impl Iterator<Item = Vec<u8>>) -> u64 {
    names.fold(!0, |crc, name| {
        let prepared = flags_of(&name).map(|flags| prepare(&name, flags));
        prepared.fold(crc, |crc, bytes| crc64(crc64(crc, bytes), [0]))
    })
}

#[test]
fn each_character_is_prepared_as_by_openzfs() {
    assert_eq!(crc_of(characters()), CHARACTERS);
}

#[test]
fn mixtures_are_prepared_as_by_openzfs() {
    assert_eq!(crc_of(mixtures(100_000)), MIXTURES);
}

#[test]
fn names_that_people_write() {
    let upper = |name: &str| String::from_utf8(prepare(name.as_bytes(), TO_UPPER)).unwrap();
    assert_eq!(upper("Größe.txt"), "GRÖßE.TXT");
    assert_eq!(upper("ωμέγα"), "ΩΜΈΓΑ");
    let nfd = |name: &str| String::from_utf8(prepare(name.as_bytes(), CANONICAL)).unwrap();
    assert_eq!(nfd("Größe"), "Gro\u{308}ße");
    assert_eq!(
        nfd("한글"),
        "\u{1112}\u{1161}\u{11ab}\u{1100}\u{1173}\u{11af}"
    );
    let nfkc = |name: &str| {
        let bytes = prepare(name.as_bytes(), COMPATIBLE | COMPOSE);
        String::from_utf8(bytes).unwrap()
    };
    assert_eq!(nfkc("Ｇro\u{308}ße ﬁ"), "Größe fi");
}

/// With `U8_TEXTPREP=PROGRAM`: beside a program around the original, which reads flags, length and bytes of a name and
/// writes an error, length and bytes. It says where they differ, and the CRCs above.
#[test]
fn beside_the_original() {
    let Some(program) = std::env::var_os("U8_TEXTPREP") else {
        return;
    };
    let original = |names: Vec<Vec<u8>>| {
        let mut child = Command::new(&program);
        let mut child = child
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut to, mut from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let writer = std::thread::spawn({
            let names = names.clone();
            move || {
                let mut bytes = Vec::new();
                for name in &names {
                    for flags in flags_of(name) {
                        bytes.extend_from_slice(&(flags as u32).to_le_bytes());
                        bytes.extend_from_slice(&(name.len() as u32).to_le_bytes());
                        bytes.extend_from_slice(name);
                    }
                }
                to.write_all(&bytes).unwrap();
            }
        });
        let mut answers = Vec::new();
        from.read_to_end(&mut answers).unwrap();
        writer.join().unwrap();
        child.wait().unwrap();
        let (mut at, mut crc, mut wrong) = (0, !0, 0);
        for name in &names {
            for flags in flags_of(name) {
                let len = u32::from_le_bytes(answers[at + 4..at + 8].try_into().unwrap()) as usize;
                let theirs = &answers[at + 8..at + 8 + len];
                at += 8 + len;
                crc = crc64(crc64(crc, theirs.iter().copied()), [0]);
                let ours = prepare(name, flags);
                if ours != theirs {
                    wrong += 1;
                    if wrong < 10 {
                        eprintln!("{flags:#x} {name:x?}\n  ours   {ours:x?}\n  theirs {theirs:x?}");
                    }
                }
            }
        }
        (crc, wrong)
    };
    let found = (
        original(characters().collect()),
        original(mixtures(100_000).collect()),
    );
    eprintln!("{found:#x?}");
    assert_eq!(original(mixtures(1_000_000).collect()).1, 0);
    assert_eq!((found.0.1, found.1.1), (0, 0));
}
