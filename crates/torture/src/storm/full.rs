//! Pools without space.

use base::ErrorKind;
use zpl::Create;

use super::bench::Bench;
use super::files::TOLERATED;
use super::step::{Kind, Step};
use crate::Dice;
use crate::memfs::MemFile;

/// Bytes of each file that the pool is filled with.
const FILE_BYTES: usize = 2 << 20;

pub(super) const KINDS: &[Kind] = &[Kind::new("fill", 5, Bench::fill)];

impl Bench {
    /// Writes until there is no space left, does some more operations, and removes what was written.
    ///
    /// # Panics
    /// When the pool does not get full, or a file cannot be removed from the full pool.
    fn fill(&mut self, step: &Step) -> bool {
        let Some(head) = self.head(step.pick) else {
            return false;
        };
        let mut dice = Dice::new(step.seed);
        let names = self.write_until_full(&head, &mut dice);
        let done = self.work(&head, step.seed, TOLERATED).run(step.amount);
        self.take(&head, done);
        self.check();
        self.unlink_all(&head, &names);
        self.forget();
        true
    }

    fn write_until_full(&mut self, head: &str, dice: &mut Dice) -> Vec<String> {
        let capacity = self.disks.bytes();
        let mut names = Vec::new();
        for n in 0..4 * capacity / FILE_BYTES as u64 {
            let name = format!("fill{}-{n}", dice.below(1 << 32));
            if !self.write_file(head, &name, dice) {
                return names;
            }
            names.push(name);
        }
        panic!(
            "{}: {} files of 2 MiB in {capacity} bytes",
            self.name,
            names.len()
        );
    }

    /// Returns whether there was space for the file; if not, nothing is left of it.
    fn write_file(&mut self, head: &str, name: &str, dice: &mut Dice) -> bool {
        let begun = self.disks.commands();
        let (world, session) = self.both();
        let fs = session.mount(head);
        let create = Create {
            mode: 0o600,
            ..Create::default()
        };
        let full = |e: &base::Error| TOLERATED.contains(&e.kind());
        let attr = match fs.create_file(fs.root(), name.as_bytes(), &create) {
            Ok(attr) => attr,
            Err(e) if full(&e) => return false,
            Err(e) => panic!("{head}/{name}: {e}"),
        };
        let mut data = dice.bytes(FILE_BYTES);
        let (half, rest) = data.split_at_mut(FILE_BYTES / 2);
        // Nothing that compresses well: the pool would never fill up.
        for (to, from) in rest.iter_mut().zip(half.iter()) {
            *to ^= from.rotate_left(3);
        }
        let written = fs.write(attr.id, 0, &data);
        match &written {
            Ok(()) => {}
            Err(e) if full(e) => data.clear(),
            Err(e) => panic!("{head}/{name}: {e}"),
        }
        let file = MemFile {
            mode: attr.mode,
            data,
            ..MemFile::default()
        };
        let model = &mut world.heads.get_mut(head).expect("it is there").fs;
        model.make(model.root(), name.as_bytes(), attr.id, file);
        self.note(begun);
        if written.is_err() {
            self.unlink_all(head, &[name.to_owned()]);
        }
        written.is_ok()
    }

    fn unlink_all(&mut self, head: &str, names: &[String]) {
        for name in names {
            let begun = self.disks.commands();
            let (world, session) = self.both();
            let fs = session.mount(head);
            let model = &mut world.heads.get_mut(head).expect("it is there").fs;
            // The operations in between may have removed or renamed it.
            let expected = model.remove(model.root(), name.as_bytes(), false);
            match (fs.unlink(fs.root(), name.as_bytes()), expected) {
                (Ok(()), Ok(())) => {}
                (Err(e), Err(kind)) if e.kind() == kind && kind != ErrorKind::NoSpace => {}
                (real, model) => panic!("{head}/{name}: {real:?}, expected {model:?}"),
            }
            self.note(begun);
        }
    }
}
