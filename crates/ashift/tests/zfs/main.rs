//! `ashift zfs …` as users call it, on pools in image files, checked with the real tools.

mod errors;
mod kernel;
mod lifecycle;
mod limits;
mod links;
mod output;
mod projects;
mod properties;
mod quotas;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{PoisonError, RwLock};

use oracle::{Zdb, have_zdb};

/// A process being started inherits this process's open devices, and their locks, until exec: none is
/// started while a test has a pool open.
static FORKS: RwLock<()> = RwLock::new(());

/// A folder with images, and a state folder that knows the pools on them.
struct Place {
    folder: tempfile::TempDir,
}

/// What one command printed.
#[derive(Debug)]
struct Said {
    code: i32,
    out: String,
    err: String,
}

impl From<Output> for Said {
    fn from(output: Output) -> Said {
        Said {
            code: output.status.code().expect("it was not killed"),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Place {
    /// A pool `tank` on one image.
    fn with_pool(options: &str) -> Place {
        let place = Place {
            folder: tempfile::tempdir().unwrap(),
        };
        place.pool("tank", options);
        place
    }

    fn images(&self) -> PathBuf {
        self.folder.path().join("images")
    }

    fn pool(&self, name: &str, options: &str) {
        std::fs::create_dir_all(self.images()).unwrap();
        let image = self.images().join(name);
        std::fs::File::create(&image)
            .unwrap()
            .set_len(512 << 20)
            .unwrap();
        let command = format!("zpool create {options} {name} {}", image.display());
        let said = self.run(&command.replace("  ", " "));
        assert_eq!((said.code, said.err.as_str()), (0, ""));
    }

    fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    /// Runs `ashift ARGS`; arguments have no blanks.
    fn run(&self, args: &str) -> Said {
        let args: Vec<&str> = args.split(' ').collect();
        let mut command = Command::new(env!("CARGO_BIN_EXE_ashift"));
        command
            .args(args)
            .env("ASHIFT_STATE", self.state())
            .env("TZ", "UTC");
        command.stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = {
            let _forks = FORKS.read().unwrap_or_else(PoisonError::into_inner);
            command.spawn().unwrap()
        };
        child.wait_with_output().unwrap().into()
    }

    /// Runs `ashift zfs ARGS`, which must succeed; returns its stdout.
    #[track_caller]
    fn zfs(&self, args: &str) -> String {
        let said = self.run(&format!("zfs {args}"));
        assert_eq!((said.code, said.err.as_str()), (0, ""), "zfs {args}");
        said.out
    }

    /// Runs `ashift zfs ARGS`, which must fail with these words on stderr and exit code 1 (255 for `set`).
    #[track_caller]
    fn refused(&self, args: &str, words: &str) {
        let said = self.run(&format!("zfs {args}"));
        assert_eq!(
            (said.err.as_str(), said.code),
            (
                format!("{words}\n").as_str(),
                if args.starts_with("set ") { 255 } else { 1 }
            ),
            "zfs {args}"
        );
    }

    /// Names of all datasets, separated by blanks.
    #[track_caller]
    fn names(&self) -> String {
        self.zfs("list -H -o name -t all")
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    }

    /// One property's value and source.
    #[track_caller]
    fn get(&self, property: &str, dataset: &str) -> String {
        self.zfs(&format!("get -H -o value,source {property} {dataset}"))
            .trim_end()
            .replace('\t', " ")
    }

    /// Opens the pool as the commands do, and calls `act`.
    fn with_spa<T>(&self, act: impl FnOnce(&spa::Spa) -> T) -> T {
        let _alone = FORKS.write().unwrap_or_else(PoisonError::into_inner);
        let cache = spa::CacheFile::new(self.state().join("zpool.cache"));
        let config = cache.find("tank").unwrap().unwrap();
        let host = spa::Host::find(&self.state()).unwrap();
        let mut settings = spa::Settings::default();
        settings.scan.blocks_max = 1; // no scrub ends unless it is waited for
        let options = spa::ImportOptions::from_config(&config, false, host, settings).unwrap();
        let spa = spa::Spa::import(options).unwrap();
        let result = act(&spa);
        spa.close().unwrap();
        result
    }

    /// Writes `bytes` into a new file.
    fn write(&self, dataset: &str, name: &str, bytes: &[u8]) -> base::Result<()> {
        self.with_spa(|spa| {
            let fs = zpl::mount::mount(spa.parts().dsl(), dataset, false)?;
            let create = zpl::Create {
                mode: 0o644,
                uid: 0,
                gid: 0,
            };
            let file = fs.create_file(fs.root(), name.as_bytes(), &create)?;
            fs.write(file.id, 0, bytes)
        })
    }

    /// The names in the root directory of a dataset or snapshot.
    fn files(&self, dataset: &str) -> Vec<String> {
        self.with_spa(|spa| {
            let fs = zpl::mount::mount(spa.parts().dsl(), dataset, false).unwrap();
            let entries = fs.list(fs.root()).unwrap().into_iter();
            entries
                .map(|entry| String::from_utf8(entry.name.to_vec()).unwrap())
                .collect()
        })
    }

    /// Exports the pool and checks every block with the real `zdb`.
    #[track_caller]
    fn verify(&self) {
        let said = self.run("zpool export tank");
        assert_eq!((said.code, said.err.as_str()), (0, ""));
        if have_zdb() {
            Zdb::verify(&self.images(), "tank").assert_clean();
        }
    }
}

/// Parses a file of commands and the real tools' output for each.
fn golden(text: &str) -> Vec<(String, Said)> {
    let mut cases: Vec<(String, Said)> = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with("# ")) {
        if let Some(command) = line.strip_prefix("$ ") {
            let said = Said {
                code: 0,
                out: String::new(),
                err: String::new(),
            };
            cases.push((command.to_owned(), said));
        } else if let Some((_, said)) = cases.last_mut() {
            if let Some(code) = line.strip_prefix("exit ") {
                said.code = code.parse().unwrap();
            } else if let Some(error) = line.strip_prefix("2> ") {
                said.err += &format!("{error}\n");
            } else {
                said.out += &format!("{line}\n");
            }
        }
    }
    cases
}

/// The path of a folder as text.
fn path(folder: &Path) -> &str {
    folder.to_str().unwrap()
}
