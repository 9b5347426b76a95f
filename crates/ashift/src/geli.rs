//! `geli`.

mod attach;
mod keys;
mod metadata;
mod secret;
mod show;

use std::sync::Arc;

use ::geli::Attached;
use base::{Error, ErrorKind, Result};
use geom::Provider;
use geom::disk::OpenMode;
use machine::{Holder, Layer, LayerKind};

use crate::command::{Command, Entry, Table};
use crate::geomclass::{Call, Class, Verb, flag, list, number, status, text, verb};
use crate::gpart::device::check_consent;

#[rustfmt::skip]
const INIT: Command<Verb> = verb(
    "init",
    "[-bdgPRTv] [-a aalgo] [-B backupfile] [-e ealgo] [-i iterations] [-J newpassfile] \
               [-K newkeyfile] [-l keylen] [-s sectorsize] [-V version] prov ...",
    &[
        text('a'), flag('b'), text('B'), flag('d'), text('e'), flag('g'), number('i'), text('J'),
        text('K'), number('l'), flag('P'), flag('R'), number('s'), flag('T'), flag('v'), number('V'),
    ],
    attach::init,
);

const DETACH: Command<Verb> = verb(
    "detach",
    "[-fl] prov ...",
    &[flag('f'), flag('l'), flag('v')],
    attach::detach,
);

#[rustfmt::skip]
const CLASS: Class = Class {
    verbs: Table {
        program: "geli",
        commands: &[
            INIT,
            Command {
                name: "label",
                about: "- an alias for 'init'",
                ..INIT
            },
            verb(
                "attach",
                "[-Cprv] [-n keyno] [-j passfile] [-k keyfile] prov ...",
                &[flag('C'), flag('d'), text('j'), text('k'), number('n'), flag('p'), flag('r'), flag('v')],
                attach::attach,
            ),
            DETACH,
            Command {
                name: "stop",
                about: "- an alias for 'detach'",
                ..DETACH
            },
            verb(
                "onetime",
                "[-RTv] [-a aalgo] [-e ealgo] [-l keylen] [-s sectorsize] prov",
                &[text('a'), flag('d'), text('e'), number('l'), flag('R'), number('s'), flag('T'), flag('v')],
                attach::onetime,
            ),
            verb(
                "configure",
                "[-bBdDgGrRtTv] prov ...",
                &[
                    flag('b'), flag('B'), flag('d'), flag('D'), flag('g'), flag('G'), flag('r'),
                    flag('R'), flag('t'), flag('T'), flag('v'),
                ],
                metadata::configure,
            ),
            verb(
                "setkey",
                "[-pPv] [-i iterations] [-j passfile] [-J newpassfile] [-k keyfile] \
                       [-K newkeyfile] [-n keyno] prov",
                &[
                    number('i'), text('j'), text('J'), text('k'), text('K'), number('n'), flag('p'),
                    flag('P'), flag('v'),
                ],
                keys::setkey,
            ),
            verb(
                "delkey",
                "[-afv] [-n keyno] prov",
                &[flag('a'), flag('f'), number('n'), flag('v')],
                keys::delkey,
            ),
            verb("kill", "[-av] [prov ...]", &[flag('a'), flag('v')], keys::kill),
            verb("backup", "[-v] prov file", &[flag('v')], metadata::backup),
            verb("restore", "[-fv] file prov", &[flag('f'), flag('v')], metadata::restore),
            verb(
                "suspend",
                "- not supported: detach and attach again",
                &[flag('a'), flag('v')],
                |_| Err(no_suspend("suspend")),
            ),
            verb(
                "resume",
                "- not supported: detach and attach again",
                &[text('j'), text('k'), flag('p'), flag('v')],
                |_| Err(no_suspend("resume")),
            ),
            verb("resize", "[-v] -s oldsize prov", &[number('s'), flag('v')], metadata::resize),
            verb("version", "[prov ...]", &[], metadata::version),
            verb("clear", "[-v] prov ...", &[flag('v')], metadata::clear),
            verb("dump", "[-jv] prov ...", &[flag('j'), flag('v')], metadata::dump),
            verb(
                "list",
                "[-aj] [name ...]",
                &[flag('a'), flag('j')],
                |call| list(call, "ELI", show::geoms(call)?),
            ),
            verb(
                "status",
                "[-ajs] [name ...]",
                &[flag('a'), flag('j'), flag('s')],
                |call| status(call, "ELI", show::geoms(call)?),
            ),
        ],
    },
    help: "\
geli init writes metadata with a new master key into the last sector of a provider; geli attach
opens it: PROV.eli then has the decrypted sectors, until geli detach.

  -s sectorsize        of PROV.eli: -s 4096 makes a pool on it choose ashift 12, and encrypts
                       eight times fewer sectors
  -e ealgo, -l keylen  AES-XTS (128 or 256 bits; -e aes), AES-CBC (128, 192, 256), NULL
  -a aalgo             authenticate sectors: HMAC/SHA1, /SHA256, /SHA384, /SHA512; what was never
                       written cannot be read: dd zeros over all of PROV.eli first
  -J file, -j file     the new, and the present, passphrase: the first line of the file; - is
                       standard input. Otherwise it is asked for on the terminal
  -K file, -k file     the new, and the present, key file; may be given several times
  -P, -p               there is no new, or no present, passphrase
  -i iterations        of PBKDF2 over the passphrase; otherwise about two seconds' worth
                       (200000 in a machine, where time is not measured)
  -n keyno             which of the two keys
  -B backupfile        where init puts a copy of the metadata; none: nowhere. Otherwise
                       MACHINE/state/backups/PROV.eli or $ASHIFT_STATE/backups/PROV.eli
  -V version           of the metadata, 0 to 7 (7)
  -b -d -g -R -T       flags: ask at boot, show stars, for the boot loader, no autoresize, no delete
  -C                   attach: only try the key
  -r                   attach: read-only
  -f                   detach, restore, delkey: even so
  -v                   say what is done
  -j                   list, status, dump: print JSON
  --yes-write-to-device   write to a block device of this host

A provider stays attached from one command to the next: its master key is kept in a file that only
you can read, below MACHINE/state, or on this host in $ASHIFT_STATE/geom.toml, until it is detached
or the power of the machine is cut. In a machine all randomness comes from its seed, so that it
comes to the same bytes again: do not put secrets there.
On this host `geli attach disk.img` makes a provider named disk.img.eli, which every command of
ashift takes for a file or device. Other programs do not see it.

  ashift -m lab geli init -s 4096 -P -K key gpt/d1
  ashift -m lab geli attach -p -k key gpt/d1
  ashift -m lab zpool create tank gpt/d1.eli
",
};

pub(crate) const GELI: Command<Entry> =
    Command::words("geli", "encrypted providers", "", |args| CLASS.run(args)).tool();

fn no_suspend(what: &str) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!("{what} is not supported: detach and attach again"),
    )
}

/// The attached provider of that name, or the one on the provider of that name.
fn find_attached(call: &Call<'_>, name: &str) -> Option<(Layer, Attached)> {
    let name = call.world.canonical(name);
    let layers = call.world.layers();
    layers.into_iter().find_map(|layer| {
        let is_it = layer.name == name || layer.on == name;
        match layer.kind.clone() {
            LayerKind::Eli(attached) if is_it => Some((layer, attached)),
            _ => None,
        }
    })
}

/// Opens the provider that has or will have metadata. For writing only if it is not in use otherwise and,
/// for a block device of this host, only with consent.
fn open(call: &Call<'_>, name: &str, mode: OpenMode) -> Result<Arc<dyn Provider>> {
    if mode == OpenMode::ReadWrite {
        check_consent(call.world, name, call.has_consent)?;
    }
    // The geli class itself has the provider below an attached one open.
    let holder = match find_attached(call, name) {
        Some((layer, _)) => Holder::Layer(layer.name),
        None => Holder::Program,
    };
    call.world
        .open_as(name, mode, &holder)
        .map_err(|error| match error.kind() {
            ErrorKind::Busy => error.within("Cannot open"),
            ErrorKind::NotFound => Error::not_found(format!(
                "Cannot get information about {name}: No such file or directory."
            )),
            _ => error,
        })
}

/// Does something for each provider; reports each failure.
fn for_each(
    call: &Call<'_>,
    otherwise: &str,
    mut act: impl FnMut(&str) -> Result<()>,
) -> Result<()> {
    let mut has_failed = false;
    for name in call.providers("Too few arguments.")? {
        if let Err(error) = act(name) {
            call.complain(&error);
            has_failed = true;
        }
    }
    if has_failed {
        return Err(Error::invalid(otherwise));
    }
    Ok(())
}

/// The error with which [`for_each`] ends if secrets were involved.
const AT_LEAST_ONE: &str = "There was an error with at least one provider.";

/// The slot that `-n` names.
fn slot(call: &Call<'_>) -> Result<Option<u8>> {
    match call.options.number('n') {
        None | Some(-1) => Ok(None),
        Some(slot @ 0..=1) => Ok(u8::try_from(slot).ok()),
        Some(_) => Err(Error::invalid("Invalid 'keyno' argument.")),
    }
}
