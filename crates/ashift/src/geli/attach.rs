//! `init`, `attach`, `detach`, `onetime`.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use ::geli::{
    Attached, AuthAlgorithm, Cipher, Components, Flags, InitOptions, Metadata, VERSION_MAX, name_on,
};
use base::{Context, Error, ErrorKind, Result};
use geom::disk::OpenMode;
use machine::{Holder, Layer, LayerKind};

use super::secret::{Which, components};
use super::{AT_LEAST_ONE, find_attached, for_each, open, slot};
use crate::geomclass::{Call, layers_above, user_of};

/// Page size of the host, in bytes: larger sectors get a warning.
const PAGE_BYTES: i64 = 4096;

fn init_options(call: &Call<'_>) -> Result<InitOptions> {
    let mut options = InitOptions::default();
    match call.options.number('V') {
        None | Some(-1) => {}
        Some(version) => {
            let known = u32::try_from(version).ok().filter(|v| *v <= VERSION_MAX);
            options.version = known.ok_or_else(|| {
                Error::invalid(format!(
                    "Invalid version specified should be between 0 and {VERSION_MAX}."
                ))
            })?;
        }
    }
    let flags = [
        ('b', Flags::BOOT),
        ('g', Flags::GELIBOOT),
        ('T', Flags::NODELETE),
    ];
    for (letter, flag) in flags {
        options.flags = options.flags.with(flag, call.options.has(letter));
    }
    let has_autoresize = !call.options.has('R');
    options.flags = options.flags.with(Flags::AUTORESIZE, has_autoresize);
    if let Some(name) = call.options.text('a') {
        // The cipher, now given with -e, was once given with -a.
        match (AuthAlgorithm::parse(name), Cipher::parse(name)) {
            (Ok(auth), _) => options.auth = Some(auth),
            (Err(_), Ok(cipher)) => {
                eprintln!(
                    "warning: The -e option, not the -a option is now used to specify encryption \
                     algorithm to use."
                );
                options.cipher = Some(cipher);
            }
            (Err(error), Err(_)) => return Err(error),
        }
    }
    if let (None, Some(name)) = (options.cipher, call.options.text('e')) {
        options.cipher = Some(Cipher::parse(name)?);
    }
    if let Some(bits) = call.options.number('l') {
        let invalid = |_| Error::invalid("Invalid key length.");
        options.key_bits = u16::try_from(bits).map_err(invalid)?;
    }
    if let Some(size @ 1..) = call.options.number('s') {
        if size > PAGE_BYTES {
            eprintln!("warning: Using sectorsize bigger than the page size!");
        }
        let invalid = |_| Error::invalid("Invalid sector size.");
        options.sectorsize = Some(u32::try_from(size).map_err(invalid)?);
    } else if call.options.number('s').is_some_and(|size| size < 0) {
        return Err(Error::invalid("Invalid sector size."));
    }
    Ok(options)
}

/// The iterations for a new passphrase.
pub(super) fn iterations(call: &Call<'_>) -> Result<Option<i32>> {
    match call.options.number('i') {
        None | Some(-1) => Ok(None),
        Some(value) => {
            let value = i32::try_from(value).ok().filter(|v| *v >= 0);
            let value = value.ok_or_else(|| Error::invalid("Invalid 'iterations' argument."))?;
            Ok(Some(value))
        }
    }
}

/// The number of iterations from a calibration; reported with `-v`.
pub(super) fn calibrated(call: &Call<'_>) -> i32 {
    if call.options.has('v') {
        println!("Calculating number of iterations...");
    }
    let iterations = ::geli::calibrate_iterations();
    if call.options.has('v') {
        println!("Done, using {iterations} iterations.");
    }
    iterations
}

pub(super) fn init(call: &mut Call<'_>) -> Result<()> {
    let call = &*call;
    let mut options = init_options(call)?;
    let is_shown = call.options.has('d');
    options.flags = options.flags.with(Flags::GELIDISPLAYPASS, is_shown);
    let mut rounds = iterations(call)?;
    if rounds.is_some() && call.options.has('P') {
        return Err(Error::invalid("Options -i and -P are mutually exclusive."));
    }
    // One passphrase for all providers, asked for at the first one that is valid.
    let mut secret: Option<Components> = None;
    for_each(call, AT_LEAST_ONE, |name| {
        let below = open(call, name, OpenMode::ReadWrite)?;
        if let Some((layer, _)) = find_attached(call, name) {
            return Err(busy(&layer.name));
        }
        options.check(&*below)?;
        let new = match secret.take() {
            Some(secret) => secret,
            None => components(call, Which::New)?,
        };
        if new.passphrase.is_some() && rounds.is_none() {
            rounds = Some(calibrated(call));
        }
        let new = secret.insert(new);
        ::geli::init(&*below, &options, new, rounds)?;
        if call.options.has('v') {
            println!("Metadata value stored on {name}.");
        }
        drop(below);
        back_up(call, name)
    })
}

fn busy(name: &str) -> Error {
    Error::new(
        ErrorKind::Busy,
        format!("{name} is attached; detach it first."),
    )
}

/// Copies the metadata of a new provider to the file given with `-B`.
fn back_up(call: &Call<'_>, name: &str) -> Result<()> {
    let canonical = call.world.canonical(name);
    let Some(file) = backup_file(call, &canonical)? else {
        return Ok(());
    };
    write_backup(call, name, &file)?;
    let file = file.display();
    println!(
        "\nMetadata backup for provider {name} can be found in {file}\n\
         and can be restored with the following command:\n\
         \n\t# geli restore {file} {name}\n"
    );
    Ok(())
}

fn backup_file(call: &Call<'_>, name: &str) -> Result<Option<PathBuf>> {
    match call.options.text('B') {
        Some("none") => Ok(None),
        Some(file) if call.options.args.len() == 1 => Ok(Some(PathBuf::from(file))),
        Some(file) if file.contains("PROV") => Ok(Some(file.replacen("PROV", name, 1).into())),
        Some(file) => Ok(Some(format!("{file}-{name}").into())),
        None => {
            let state = match call.world.running() {
                Some(machine) => machine.state(),
                None => crate::state::state_folder(),
            };
            let folder = state.join("backups");
            fs::create_dir_all(&folder)
                .map_err(Error::from)
                .within(|| folder.display().to_string())?;
            Ok(Some(folder.join(format!("{}.eli", name.replace('/', "_")))))
        }
    }
}

/// Writes the sector with the metadata into a file, which only its owner can read if it is new.
pub(super) fn write_backup(call: &Call<'_>, name: &str, file: &Path) -> Result<()> {
    let below = open(call, name, OpenMode::Inspect)?;
    let sector = ::geli::metadata_sector(&*below)
        .within(|| format!("Unable to read metadata from {name}"))?;
    let options = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(file);
    let mut open = options
        .map_err(Error::from)
        .within(|| format!("Unable to open {}", file.display()))?;
    open.write_all(&sector)
        .and_then(|()| open.sync_all())
        .map_err(Error::from)
        .within(|| format!("Unable to write to {}", file.display()))
}

pub(super) fn attach(call: &mut Call<'_>) -> Result<()> {
    let call = &*call;
    if call.options.has('d') {
        return Err(no_last_close("-d"));
    }
    let slot = slot(call)?;
    let mut secret: Option<Components> = None;
    for_each(call, AT_LEAST_ONE, |name| {
        let below = open(call, name, OpenMode::Inspect)?;
        let metadata = Metadata::read(&*below)?;
        if metadata.provsize != below.mediasize() {
            return Err(Error::invalid("Provider size mismatch."));
        }
        if metadata.iterations == -1 && !call.options.has('p') {
            return Err(Error::invalid("Missing -p flag."));
        }
        let present = match secret.take() {
            Some(secret) => secret,
            None => components(call, Which::Present)?,
        };
        let present = secret.insert(present);
        let mut attached = ::geli::attach(&*below, &metadata, present, slot)?;
        if call.options.has('r') {
            attached.flags = attached.flags.with(Flags::RO, true);
        }
        if call.options.has('C') {
            return Ok(());
        }
        drop(below);
        add(call, name, attached)?;
        if call.options.has('v') {
            println!("Attached to {name}.");
        }
        Ok(())
    })
}

fn no_last_close(option: &str) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!(
            "{option} (detach on last close) is not supported: every command opens and closes \
             its providers"
        ),
    )
}

/// Attaches a provider, unless the one below is in use.
fn add(call: &Call<'_>, name: &str, attached: Attached) -> Result<()> {
    let on = call.world.canonical(name);
    let eli = name_on(&on);
    if call.world.layer(&eli).is_none() {
        call.world
            .hold(&on, &Holder::Layer(eli.clone()))
            .within(|| "Cannot access")?;
    }
    call.world.add_layer(Layer {
        name: eli,
        on,
        transient: true,
        kind: LayerKind::Eli(attached),
    })
}

pub(super) fn onetime(call: &mut Call<'_>) -> Result<()> {
    if call.options.has('d') {
        return Err(no_last_close("-d"));
    }
    let [name] = call.args()?;
    let options = init_options(call)?;
    let below = open(call, name, OpenMode::Inspect)?;
    let attached = ::geli::onetime(&*below, &options)?;
    drop(below);
    add(call, name, attached)
}

pub(super) fn detach(call: &mut Call<'_>) -> Result<()> {
    for name in call.providers("Missing device(s).")? {
        let found = find_attached(call, name);
        let (layer, _) =
            found.ok_or_else(|| Error::not_found(format!("No such device: {name}.")))?;
        if call.options.has('f') {
            for above in layers_above(call.world, &layer.name) {
                call.world.remove_layer(&above.name)?;
            }
        } else if let Some(user) = user_of(call.world, &layer.name)? {
            if call.options.has('l') {
                return Err(no_last_close("-l"));
            }
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
