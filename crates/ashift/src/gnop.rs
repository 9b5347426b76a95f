//! `gnop`.

use std::sync::Arc;

use base::{Error, ErrorKind, Result};
use geom::Provider;
use geom::disk::OpenMode;
use geom::nop::{Nop, NopChange, NopConfig, NopCounters, name_for};
use machine::{Layer, LayerKind};
use serde_json::{Value, json};

use crate::command::{Command, Entry, Table};
use crate::geomclass::{
    Call, Class, Geom, Shape, flag, layers_above, list, number, status, text, user_of, verb,
};

#[rustfmt::skip]
const CLASS: Class = Class {
    verbs: Table {
        program: "gnop",
        commands: &[
            verb(
                "create",
                "[-v] [-c count_until_fail] [-d delaymsec] [-e error] [-o offset] \
                       [-p stripesize] [-P stripeoffset] [-q rdelayprob] [-r rfailprob] [-s size] \
                       [-S secsize] [-w wfailprob] [-x wdelayprob] [-z physpath] [-Z gnopname] \
                       [--transient] dev ...",
                &[
                    flag('v'), number('c'), number('d'), number('e'), number('o'), number('p'),
                    number('P'), number('q'), number('r'), number('s'), number('S'), number('w'),
                    number('x'), text('z'), text('Z'), flag('T').named("transient"),
                ],
                create,
            ),
            verb(
                "configure",
                "[-v] [-c count_until_fail] [-d delaymsec] [-e error] [-q rdelayprob] \
                       [-r rfailprob] [-w wfailprob] [-x wdelayprob] prov ...",
                &[
                    flag('v'), number('c'), number('d'), number('e'), number('q'), number('r'),
                    number('w'), number('x'),
                ],
                configure,
            ),
            verb("destroy", "[-fv] prov ...", &[flag('f'), flag('v')], destroy),
            verb("reset", "[-v] prov ...", &[flag('v')], reset),
            verb("list", "[-aj] [name ...]", &[flag('a'), flag('j')], |call| list(call, "NOP", geoms(call)?)),
            verb(
                "status",
                "[-ajs] [name ...]",
                &[flag('a'), flag('j'), flag('s')],
                |call| status(call, "NOP", geoms(call)?),
            ),
        ],
    },
    help: "\
A nop stands on a provider and passes on what it gets, with another sector size (-S), another
physical sector (-p, -P), a part of it only (-o, -s), and with failures and delays by chance.
Its name is that of the provider below with .nop behind it, or that of -Z.

  -S secsize           the sector size; a multiple of that below
  -o offset, -s size   where it begins, and how much of it there is
  -p, -P               the physical sector, and where the first one begins; not inherited
  -r, -w percent       how many reads and writes fail, -e with which error (5)
  -q, -x percent       how many reads and writes are delayed, -d by how many milliseconds (1)
  -c count             after how many commands every read and write fails; 0 is never
  -z physpath          the physical path that it claims
  --transient          gone when the power is cut, as a nop of FreeBSD is
  -f                   destroy it although something uses it
  -v                   say when it is done
  -j                   print JSON

Numbers may have a unit: 4k is 4096.

Where nops are kept: in a machine (ashift -m MACHINE gnop ...) in its machine.toml, so that they are
there again after a loss of power, but for those made with --transient. On this host in
$ASHIFT_STATE/geom.toml (default: ~/.local/state/ashift/geom.toml): `gnop create -S 4k disk.img`
makes a provider named disk.img.nop, which every command of ashift takes for a file or device.
Other programs do not see it.

  ashift -m lab gnop create -S 4096 /dev/gpt/d1
  ashift -m lab zpool create tank gpt/d1.nop
  ashift -m lab zpool export tank && ashift -m lab gnop destroy gpt/d1.nop
",
};

pub(crate) const GNOP: Command<Entry> = Command::words(
    "gnop",
    "a provider that passes on what it gets, with another sector size",
    "",
    |args| CLASS.run(args),
)
.tool();

/// A number that must not be negative; -1 means "not given", as in geom(8).
fn unsigned(call: &Call<'_>, letter: char, name: &str) -> Result<Option<u64>> {
    match call.options.number(letter) {
        None | Some(-1) => Ok(None),
        Some(value) => u64::try_from(value)
            .map(Some)
            .map_err(|_| invalid_argument(name)),
    }
}

fn small(call: &Call<'_>, letter: char, name: &str) -> Result<Option<u32>> {
    let value = unsigned(call, letter, name)?;
    let small = value.map(|v| u32::try_from(v).map_err(|_| invalid_argument(name)));
    small.transpose()
}

fn size(call: &Call<'_>, letter: char, name: &str) -> Result<u64> {
    let value = call.options.number(letter).unwrap_or(0);
    u64::try_from(value).map_err(|_| invalid_argument(name))
}

fn invalid_argument(name: &str) -> Error {
    Error::invalid(format!("Invalid '{name}' argument"))
}

fn change(call: &Call<'_>) -> Result<NopChange> {
    let error = call.options.number('e').filter(|e| *e != -1);
    let error = error.map(|e| i32::try_from(e).map_err(|_| invalid_argument("error")));
    Ok(NopChange {
        error: error.transpose()?,
        rfailprob: small(call, 'r', "rfailprob")?,
        wfailprob: small(call, 'w', "wfailprob")?,
        delaymsec: small(call, 'd', "delaymsec")?,
        rdelayprob: small(call, 'q', "rdelayprob")?,
        wdelayprob: small(call, 'x', "wdelayprob")?,
        count_until_fail: unsigned(call, 'c', "count_until_fail")?,
    })
}

fn create(call: &mut Call<'_>) -> Result<()> {
    let mut config = NopConfig {
        offset: size(call, 'o', "offset")?,
        size: size(call, 's', "size")?,
        secsize: size(call, 'S', "secsize")?,
        stripesize: size(call, 'p', "stripesize")?,
        stripeoffset: size(call, 'P', "stripeoffset")?,
        physpath: call.options.text('z').map(str::to_owned),
        ..NopConfig::default()
    };
    config.change(&change(call)?)?;
    for on in call.providers("Missing device(s).")? {
        let on = call.world.canonical(on);
        let name = name_for(&on, call.options.text('Z'))?;
        // Errors in the configuration are reported before a name already in use.
        Nop::new(open(call, &on)?, &*name, config.clone())?;
        let layer = Layer {
            name,
            on,
            transient: call.options.has('T'),
            kind: LayerKind::Nop(config.clone()),
        };
        call.world.add_layer(layer)?;
    }
    Ok(())
}

/// The provider for the nop to be on.
fn open(call: &Call<'_>, name: &str) -> Result<Arc<dyn Provider>> {
    match call.world.open(name, OpenMode::Inspect) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err(Error::not_found(format!("Provider {name} is invalid.")))
        }
        other => other,
    }
}

/// The nop of that name.
fn find(call: &Call<'_>, name: &str, what: &str) -> Result<(Layer, NopConfig)> {
    match call.world.layer(name) {
        Some(layer) => match layer.kind.clone() {
            LayerKind::Nop(config) => Ok((layer, config)),
            LayerKind::Eli(_) => Err(is_invalid(what, name)),
        },
        None => Err(is_invalid(what, name)),
    }
}

fn is_invalid(what: &str, name: &str) -> Error {
    Error::not_found(format!("{what} {name} is invalid."))
}

fn configure(call: &mut Call<'_>) -> Result<()> {
    let change = change(call)?;
    for name in call.providers("Missing device(s).")? {
        let (layer, mut config) = find(call, name, "Provider")?;
        config.change(&change)?;
        let kind = LayerKind::Nop(config);
        call.world.update_layer(Layer { kind, ..layer })?;
    }
    Ok(())
}

fn destroy(call: &mut Call<'_>) -> Result<()> {
    for name in call.providers("Missing device(s).")? {
        let (layer, _) = find(call, name, "Device")?;
        if call.options.has('f') {
            for above in layers_above(call.world, &layer.name) {
                call.world.remove_layer(&above.name)?;
            }
        } else if let Some(user) = user_of(call.world, &layer.name)? {
            let name = &layer.name;
            return Err(Error::new(
                ErrorKind::Busy,
                format!("Cannot destroy device {name} (error=16): it is used by {user}."),
            ));
        }
        call.world.remove_layer(&layer.name)?;
    }
    Ok(())
}

fn reset(call: &mut Call<'_>) -> Result<()> {
    for name in call.providers("Missing device(s).")? {
        let (layer, _) = find(call, name, "Provider")?;
        call.world.reset_nop_counters(&layer.name)?;
    }
    Ok(())
}

fn geoms(call: &Call<'_>) -> Result<Vec<Geom>> {
    let world = call.world;
    let mut geoms = Vec::new();
    for layer in world.layers() {
        let LayerKind::Nop(config) = &layer.kind else {
            continue;
        };
        let is_used = user_of(world, &layer.name)?.is_some();
        geoms.push(Geom {
            fields: fields(&layer, config, &world.nop_counters(&layer.name)?),
            status: "N/A".to_owned(),
            provider: Shape::of(world, &layer.name, is_used),
            consumer: Shape::of(world, &layer.on, is_used),
            name: layer.name,
            below: layer.on,
        });
    }
    Ok(geoms)
}

/// In the order in which geom(8) prints them: the reverse of that in which the kernel's class emits them.
fn fields(layer: &Layer, config: &NopConfig, counters: &NopCounters) -> Vec<(&'static str, Value)> {
    let mut fields = vec![
        ("WroteBytes", json!(counters.wrote_bytes)),
        ("ReadBytes", json!(counters.read_bytes)),
        ("Cmd2s", json!(counters.cmd2s)),
        ("Cmd1s", json!(counters.cmd1s)),
        ("Cmd0s", json!(counters.cmd0s)),
        ("Flushes", json!(counters.flushes)),
        ("Getattrs", json!(counters.getattrs)),
        ("Deletes", json!(counters.deletes)),
        ("Writes", json!(counters.writes)),
        ("Reads", json!(counters.reads)),
        ("Error", json!(config.error)),
        ("CountUntilFail", json!(config.count_until_fail)),
        ("Delay", json!(config.delaymsec)),
        ("WriteDelayedProb", json!(config.wdelayprob)),
        ("ReadDelayedProb", json!(config.rdelayprob)),
        ("WriteFailProb", json!(config.wfailprob)),
        ("ReadFailProb", json!(config.rfailprob)),
        ("Offset", json!(config.offset)),
    ];
    if layer.transient {
        fields.push(("Transient", json!("yes")));
    }
    fields
}
