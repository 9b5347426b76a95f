//! The tests on many files.

use base::Result as Io;

use crate::bench::{Observer, Stop};
use crate::files::{File, Files, How};
use crate::options::{Kind, Options};
use crate::random::Random;
use crate::results::{Longest, Results, Stopwatch, Taken, Test};

/// A name has up to so many random letters.
const LETTERS_MAX: u32 = 12;
const LETTERS: &[u8; 62] = b"abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";

type Outcome<T = ()> = Result<T, Stop>;

/// The files, which are removed when this is dropped.
pub(crate) struct Many<'a> {
    files: &'a dyn Files,
    options: &'a Options,
    /// The directory of all of them.
    folder: &'a str,
    names: Vec<Name>,
    /// The directories, open to be synced, until they are removed.
    open: Vec<Option<Box<dyn File>>>,
    /// Syncing a directory has failed once, and is not tried again.
    cannot_sync: bool,
    depth: Depth,
    buf: Vec<u8>,
}

/// Which directory is the current one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Depth {
    /// The one in which the folder is, which is not there.
    Outside,
    /// The one in which the folder is.
    Above,
    /// The folder.
    Folder,
    /// One in the folder.
    Below,
}

struct Name {
    path: String,
    directory: u32,
}

impl Drop for Many<'_> {
    /// Removes what an early end has left; what cannot be removed stays.
    fn drop(&mut self) {
        self.open.clear();
        if self.depth == Depth::Outside {
            return;
        }
        if self.depth == Depth::Below {
            let _ = self.files.chdir("..");
        }
        if self.depth != Depth::Above {
            for name in &self.names {
                let _ = self.files.unlink(&name.path);
            }
            for directory in self.subdirectories() {
                let _ = self.files.rmdir(&directory_name(directory));
            }
            let _ = self.files.chdir("..");
        }
        let _ = self.files.rmdir(self.folder);
    }
}

fn directory_name(number: u32) -> String {
    format!("{number:05}")
}

impl<'a> Many<'a> {
    pub(crate) fn new(files: &'a dyn Files, options: &'a Options, folder: &'a str) -> Many<'a> {
        Many {
            files,
            options,
            folder,
            names: Vec::new(),
            open: Vec::new(),
            cannot_sync: false,
            depth: Depth::Outside,
            buf: vec![0; options.file_chunk_bytes as usize],
        }
    }

    /// Runs the tests.
    pub(crate) fn run(
        &mut self,
        random: &mut Random,
        observer: &mut dyn Observer,
        results: &mut Results,
    ) -> Outcome {
        observer.wait_for_turn(Test::CreateInOrder)?;
        observer.say("Create files in sequential order...");
        let taken = self.create(random, observer, false)?;
        results.record(Test::CreateInOrder, taken);
        observer.wait_for_turn(Test::StatInOrder)?;
        observer.say("done.\nStat files in sequential order...");
        let taken = self.stat_in_order(observer)?;
        results.record(Test::StatInOrder, taken);
        observer.wait_for_turn(Test::DeleteInOrder)?;
        observer.say("done.\nDelete files in sequential order...");
        results.record(Test::DeleteInOrder, self.delete_in_order(observer)?);
        observer.say("done.\n");
        observer.wait_for_turn(Test::CreateRandom)?;
        observer.say("Create files in random order...");
        let taken = self.create(random, observer, true)?;
        results.record(Test::CreateRandom, taken);
        observer.wait_for_turn(Test::StatRandom)?;
        observer.say("done.\nStat files in random order...");
        let taken = self.stat_random(random, observer)?;
        results.record(Test::StatRandom, taken);
        observer.wait_for_turn(Test::DeleteRandom)?;
        observer.say("done.\nDelete files in random order...");
        let taken = self.delete_random(random, observer)?;
        results.record(Test::DeleteRandom, taken);
        observer.say("done.\n");
        Ok(())
    }

    /// The numbers of the directories in the folder; none if the files are in the folder itself.
    fn subdirectories(&self) -> std::ops::Range<u32> {
        match self.options.directories {
            1 => 0..0,
            directories => 0..directories,
        }
    }

    /// Names them: a number, and letters behind it, or before it for a random order.
    fn make_names(&mut self, random: &mut Random, is_random: bool) {
        let files = self.options.files();
        let per_directory = files / self.options.directories;
        let (mut directory, mut in_it) = (0, 0);
        self.names.clear();
        for number in 0..files {
            let letters = random.below(LETTERS_MAX + 1);
            let letters: String = (0..letters)
                .map(|_| LETTERS[random.below(LETTERS.len() as u32) as usize])
                .map(char::from)
                .collect();
            let mut path = match self.options.directories {
                1 => String::new(),
                _ => format!("{}/", directory_name(directory)),
            };
            path += &match is_random {
                true => format!("{letters}{number:010x}"),
                false => format!("{number:010x}{letters}"),
            };
            self.names.push(Name { path, directory });
            // As the original counts, a directory gets one more than its share.
            in_it += 1;
            if in_it > per_directory {
                (directory, in_it) = (directory + 1, 0);
            }
        }
    }

    /// Makes folder and directories.
    fn make_folder(&mut self) -> Outcome {
        let (files, folder) = (self.files, self.folder);
        let made = files.mkdir(folder);
        made.map_err(Stop::of(format_args!("Can't make directory {folder}")))?;
        self.depth = Depth::Above;
        let entered = files.chdir(folder);
        entered.map_err(Stop::of(format_args!("Can't change to directory {folder}")))?;
        self.depth = Depth::Folder;
        for directory in self.subdirectories() {
            let name = directory_name(directory);
            let made = files.mkdir(&name);
            made.map_err(Stop::of(format_args!("Can't make directory {name}")))?;
            self.open_to_sync(&name)?;
            self.buf[..name.len()].copy_from_slice(name.as_bytes());
        }
        if self.subdirectories().is_empty() {
            self.open_to_sync(".")?;
        }
        Ok(())
    }

    fn open_to_sync(&mut self, directory: &str) -> Outcome {
        if self.options.syncs {
            let opened = self.files.open(directory, How::Read);
            let open = opened.map_err(Stop::of("Can't get directory handle"))?;
            self.open.push(Some(open));
        }
        Ok(())
    }

    /// With `-b`, puts the names of a directory onto stable storage.
    fn sync_directory(&mut self, directory: u32) {
        if self.options.syncs && !self.cannot_sync {
            let open = self.open[directory as usize].as_mut();
            self.cannot_sync = open.is_some_and(|open| open.fsync().is_err());
        }
    }

    fn create(
        &mut self,
        random: &mut Random,
        observer: &mut dyn Observer,
        is_random: bool,
    ) -> Outcome<Taken> {
        self.make_names(random, is_random);
        self.make_folder()?;
        let names = std::mem::take(&mut self.names);
        let (watch, mut longest) = (Stopwatch::start(), Longest::default());
        let mut outcome = Ok(());
        for name in &names {
            outcome = match observer.is_interrupted() {
                true => Err(Stop::Interrupted),
                false => longest.time(|| self.create_one(random, name, &names[0])),
            };
            if outcome.is_err() {
                break;
            }
        }
        self.names = names;
        outcome?;
        self.sync()?;
        Ok(watch.stop(&longest))
    }

    fn create_one(&mut self, random: &mut Random, name: &Name, first: &Name) -> Outcome {
        let path = &name.path;
        let is_first = std::ptr::eq(name, first);
        let made = match self.options.kind {
            Kind::Links if !is_first => self.files.link(&first.path, path),
            Kind::Symlinks if !is_first => {
                let target = first.path.split_once('/').map_or(&*first.path, |(_, n)| n);
                self.files.symlink(target, path)
            }
            Kind::Links | Kind::Symlinks => return self.create_file(name, 0),
            Kind::Files {
                max_bytes,
                min_bytes,
            } => {
                let bytes = match max_bytes - min_bytes {
                    0 => max_bytes,
                    range => min_bytes + random.below(range + 1),
                };
                return self.create_file(name, bytes);
            }
        };
        let what = match self.options.kind {
            Kind::Symlinks => "symlink",
            _ => "link",
        };
        made.map_err(Stop::of(format_args!("Can't create {what} {path}")))?;
        self.sync_directory(name.directory);
        Ok(())
    }

    fn create_file(&mut self, name: &Name, bytes: u32) -> Outcome {
        let opened = self.files.open(&name.path, How::CreateToWrite);
        let mut file = opened.map_err(Stop::of(format_args!("Can't create file {}", name.path)))?;
        let mut left = bytes as usize;
        while left > 0 {
            let part = left.min(self.buf.len());
            match file.write(&self.buf[..part]) {
                Ok(written) if written == part => left -= part,
                Ok(_) => return Err(Stop::Failed("Can't write data.".into())),
                Err(error) => return Err(Stop::of("Can't write data")(error)),
            }
        }
        if self.options.syncs {
            file.fsync().map_err(Stop::of("Can't sync file"))?;
            self.sync_directory(name.directory);
        }
        Ok(())
    }

    /// Goes through all directories; the operation gets each name in the order of the directory, and whether to go on.
    fn in_order(
        &mut self,
        observer: &mut dyn Observer,
        longest: &mut Longest,
        removes: bool,
        mut operation: impl FnMut(&mut Self, &str, u32) -> Outcome,
    ) -> Outcome {
        let mut found = 0;
        for directory in 0..self.options.directories {
            self.enter(directory)?;
            let mut outcome = Ok(());
            let mut start_ns = rt::now_ns();
            let files = self.files;
            let listed = files.list(&mut |name| -> Io<()> {
                // Names that begin with a dot are not of this test.
                if outcome.is_err() || name.starts_with('.') {
                    return Ok(());
                }
                outcome = match observer.is_interrupted() {
                    true => Err(Stop::Interrupted),
                    false => operation(self, name, directory),
                };
                found += 1;
                longest.since(start_ns);
                start_ns = rt::now_ns();
                Ok(())
            });
            outcome?;
            listed.map_err(Stop::of("Can't open directory"))?;
            self.leave(directory, removes)?;
        }
        if removes {
            self.open.clear();
            self.remove_folder()?;
        }
        match (found, self.options.files()) {
            (found, files) if found == files => Ok(()),
            (found, files) => Err(Stop::Failed(format!(
                "Expected {files} files but only got {found}"
            ))),
        }
    }

    fn enter(&mut self, directory: u32) -> Outcome {
        if self.options.directories == 1 {
            return Ok(());
        }
        let name = directory_name(directory);
        let entered = self.files.chdir(&name);
        entered.map_err(Stop::of(format_args!("Can't change to directory {name}")))?;
        self.depth = Depth::Below;
        Ok(())
    }

    fn leave(&mut self, directory: u32, removes: bool) -> Outcome {
        if removes && self.options.syncs {
            self.open[directory as usize] = None;
        }
        if self.options.directories == 1 {
            return Ok(());
        }
        let left = self.files.chdir("..");
        left.map_err(Stop::of("Can't change to directory .."))?;
        self.depth = Depth::Folder;
        match removes {
            true => self.remove(&directory_name(directory)),
            false => Ok(()),
        }
    }

    fn remove(&self, directory: &str) -> Outcome {
        let removed = self.files.rmdir(directory);
        removed.map_err(Stop::of(format_args!("rmdir {directory}")))
    }

    fn remove_folder(&mut self) -> Outcome {
        let left = self.files.chdir("..");
        left.map_err(Stop::of("Can't change to directory .."))?;
        self.depth = Depth::Above;
        self.remove(self.folder)?;
        self.depth = Depth::Outside;
        Ok(())
    }

    fn sync(&self) -> Outcome {
        self.files.sync().map_err(Stop::of("sync"))
    }

    fn stat_in_order(&mut self, observer: &mut dyn Observer) -> Outcome<Taken> {
        let (watch, mut longest) = (Stopwatch::start(), Longest::default());
        self.in_order(observer, &mut longest, false, |many, name, _| {
            many.stat(name)
        })?;
        Ok(watch.stop(&longest))
    }

    fn delete_in_order(&mut self, observer: &mut dyn Observer) -> Outcome<Taken> {
        let (watch, mut longest) = (Stopwatch::start(), Longest::default());
        self.in_order(observer, &mut longest, true, |many, name, directory| {
            many.unlink(name, directory)
        })?;
        self.sync()?;
        Ok(watch.stop(&longest))
    }

    fn unlink(&mut self, path: &str, directory: u32) -> Outcome {
        let removed = self.files.unlink(path);
        removed.map_err(Stop::of(format_args!("Can't delete file {path}")))?;
        self.sync_directory(directory);
        Ok(())
    }

    /// Looks at a file, and reads it if there is something in it.
    fn stat(&mut self, path: &str) -> Outcome {
        let stated = self.files.stat(path);
        let bytes = stated.map_err(Stop::of(format_args!("Can't stat file {path}")))?;
        if bytes == 0 {
            return Ok(());
        }
        let opened = self.files.open(path, How::Read);
        let mut file = opened.map_err(Stop::of(format_args!("Can't open file {path}")))?;
        let mut left = usize::try_from(bytes).unwrap_or(usize::MAX);
        while left > 0 {
            let part = left.min(self.buf.len());
            match file.read(&mut self.buf[..part]) {
                Ok(read) if read == part => left -= part,
                Ok(_) => return Err(Stop::Failed("Can't read data.".into())),
                Err(error) => return Err(Stop::of("Can't read data")(error)),
            }
        }
        Ok(())
    }

    /// Brings the names into a random order.
    fn shuffle(&mut self, random: &mut Random) {
        for at in 0..self.names.len() {
            let other = random.below(self.options.files()) as usize;
            self.names.swap(at, other);
        }
    }

    /// Does something with each name, in a random order.
    fn shuffled(
        &mut self,
        observer: &mut dyn Observer,
        longest: &mut Longest,
        mut operation: impl FnMut(&mut Self, &Name) -> Outcome,
    ) -> Outcome {
        let names = std::mem::take(&mut self.names);
        let mut outcome = Ok(());
        for name in &names {
            outcome = match observer.is_interrupted() {
                true => Err(Stop::Interrupted),
                false => longest.time(|| operation(self, name)),
            };
            if outcome.is_err() {
                break;
            }
        }
        self.names = names;
        outcome
    }

    fn stat_random(&mut self, random: &mut Random, observer: &mut dyn Observer) -> Outcome<Taken> {
        self.shuffle(random);
        let (watch, mut longest) = (Stopwatch::start(), Longest::default());
        self.shuffled(observer, &mut longest, |many, name| many.stat(&name.path))?;
        Ok(watch.stop(&longest))
    }

    fn delete_random(
        &mut self,
        random: &mut Random,
        observer: &mut dyn Observer,
    ) -> Outcome<Taken> {
        self.shuffle(random);
        let (watch, mut longest) = (Stopwatch::start(), Longest::default());
        self.shuffled(observer, &mut longest, |many, name| {
            many.unlink(&name.path, name.directory)
        })?;
        for directory in self.subdirectories() {
            if self.options.syncs {
                self.open[directory as usize] = None;
            }
            self.remove(&directory_name(directory))?;
        }
        self.open.clear();
        self.remove_folder()?;
        self.sync()?;
        Ok(watch.stop(&longest))
    }
}
