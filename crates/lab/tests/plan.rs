//! Plans on a fake shell with canned answers, samples of real folders, and files of results.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use base::{Error, Result};
use lab::plan::{
    Figures, Found, Header, Journal, Layout, Plan, PlannedDrive, Request, Results, Sample, Shard,
    Survey, Trial, Tried,
};
use lab::{Answer, DriveTrace, MachinePlan, Shell};

fn drives(count: usize) -> Vec<PlannedDrive> {
    let drive = PlannedDrive {
        profile: "slow".into(),
        bytes: 1 << 40,
        read_cache_bytes: 1 << 20,
    };
    vec![drive; count]
}

fn request() -> Request {
    let words = |text: &str| text.split(' ').map(str::to_owned).collect();
    Request {
        data: PathBuf::from("/data"),
        drives: drives(4),
        special: drives(2),
        layouts: vec![Layout::Stripe, Layout::RaidZ(1)],
        ashifts: vec![9, 12],
        recordsizes: words("128K 1M"),
        compressions: words("lz4"),
        small: words("0 32K"),
        sample_bytes: None,
        host: "modern".into(),
        memory: None,
        seed: 1,
    }
}

fn header(request: Request) -> Header {
    Header {
        made_by: "test 1".into(),
        request,
        shard: Shard::WHOLE,
        found: Found {
            files: 1,
            bytes: 10,
            ..Found::default()
        },
        sample: Sample {
            one_in: 1,
            files: 1,
            folders: 1,
            bytes: 10,
        },
    }
}

/// Answers as a pool would whose figures follow from its options.
#[derive(Default)]
struct Fake {
    /// The words that each machine got so far.
    ran: Mutex<BTreeMap<PathBuf, Vec<Vec<String>>>>,
    plans: Mutex<Vec<MachinePlan>>,
    /// Copying fails with this if the pool has ashift 12.
    complaint: &'static str,
}

impl Fake {
    fn option(&self, machine: &Path, name: &str) -> String {
        let ran = self.ran.lock().unwrap();
        let create = &ran[machine][0];
        let found = create
            .iter()
            .find_map(|word| word.strip_prefix(&format!("{name}=")));
        found.unwrap_or_default().to_owned()
    }
}

impl Shell for Fake {
    fn create(&self, machine: &Path, plan: &MachinePlan) -> Result<()> {
        self.ran
            .lock()
            .unwrap()
            .insert(machine.to_owned(), Vec::new());
        self.plans.lock().unwrap().push(plan.clone());
        Ok(())
    }

    fn run(&self, machine: &Path, words: &[String]) -> Result<Answer> {
        self.ran
            .lock()
            .unwrap()
            .get_mut(machine)
            .unwrap()
            .push(words.to_vec());
        let is_full = self.ran.lock().unwrap()[machine]
            .iter()
            .any(|words| words[0] == "cp");
        let is_large = self.option(machine, "ashift") == "12";
        // To open an empty pool takes 1 s, one with files 3 s.
        let seconds = match words.iter().any(|word| word == "-maxdepth") {
            true => 1 + 2 * u64::from(is_full),
            false => 2 + 8 * u64::from(is_full),
        };
        let mut answer = Answer {
            took_ns: seconds * 1_000_000_000,
            ..Answer::default()
        };
        if words[1] == "list" {
            let allocated = if !is_full {
                1000
            } else if is_large {
                9000
            } else {
                5000
            };
            answer.output = format!(
                "tank\t0\t0\t0\n\traidz1-0\t100000\t{allocated}\t0\n\tada0\t50000\t-\t-\nspecial  -  -\n\
                 \tmirror-1\t10000\t{}\t0\n\tnvd0\t10000\t-\t-\n",
                allocated / 10
            );
        }
        if words[0] == "cp" && is_large && !self.complaint.is_empty() {
            (answer.code, answer.complaints) = (1, self.complaint.to_owned());
        }
        Ok(answer)
    }

    fn traces(&self, machine: &Path) -> Result<Vec<DriveTrace>> {
        let is_large = self.option(machine, "ashift") == "12";
        Ok(vec![DriveTrace {
            partial_writes: if is_large { 3 } else { 4000 },
            ..DriveTrace::default()
        }])
    }
}

fn tried(
    request: &Request,
    shell: &Fake,
    one_in: u64,
    folder: &Path,
) -> Result<BTreeMap<usize, Tried>> {
    let trial = Trial {
        request,
        files: PathBuf::from("/files"),
        machines: folder.to_owned(),
        one_in,
        scale: one_in as f64,
        jobs: 2,
        keep: false,
    };
    let all: Vec<usize> = (0..request.combinations().len()).collect();
    let tried = Mutex::new(BTreeMap::new());
    trial.run(&all, shell, &|place, how| {
        tried.lock().unwrap().insert(place, how);
        Ok(())
    })?;
    Ok(tried.into_inner().unwrap())
}

fn figures(tried: &Tried) -> &Figures {
    match tried {
        Tried::Measured(figures) => figures,
        Tried::DoesNotFit => panic!("it fits"),
    }
}

#[test]
fn every_combination_is_tried_and_what_an_empty_pool_takes_is_not_multiplied() {
    let folder = tempfile::tempdir().unwrap();
    let (request, shell) = (request(), Fake::default());
    let tried = tried(&request, &shell, 8, folder.path()).unwrap();
    // 2 layouts, 2 ashifts, 2 sizes of records, without a special vdev and with 2 sizes of small blocks.
    assert_eq!(tried.len(), 24);
    let first = figures(&tried[&0]);
    assert_eq!(first.copy.seconds, 2.0 + 8.0 * 8.0);
    assert_eq!(first.walk.seconds, 3.0 + 7.0 * 8.0);
    assert_eq!(first.scrub.seconds, 4.0 + 6.0 * 8.0);
    assert_eq!(first.space.used, 1000.0 + 4000.0 * 8.0);
    assert_eq!(first.replace, None, "a stripe cannot replace what is gone");
    let special = first.special.unwrap().used;
    assert_eq!(
        special,
        2.0 * (100.0 + 400.0 * 8.0),
        "both sides of the mirror count"
    );
    assert!(figures(&tried[&23]).replace.is_some());
    let plans = shell.plans.lock().unwrap();
    let size = format!("slow,size={}", (1u64 << 40) / 8);
    assert!(
        plans[0].drives.iter().all(|(_, drive)| *drive == size),
        "an Nth of each drive"
    );
    let ran = shell.ran.lock().unwrap();
    let thin = ran.values().map(|words| words[0].join(" "));
    let thin: Vec<String> = thin
        .filter(|line| line.contains("raidz1") && line.contains("special "))
        .collect();
    assert!(
        thin.iter().all(|line| !line.contains(" -f ")),
        "a mirror survives as much as RAID-Z1: {thin:?}"
    );
}

#[test]
fn what_does_not_fit_is_an_answer_and_anything_else_ends_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let full = Fake {
        complaint: "cp: tank:/a: No space left on device",
        ..Fake::default()
    };
    let all = tried(&request(), &full, 1, folder.path()).unwrap();
    let without_room = all
        .values()
        .filter(|tried| **tried == Tried::DoesNotFit)
        .count();
    assert_eq!(without_room, 12);
    let broken = Fake {
        complaint: "cp: tank:/a: Input/output error",
        ..Fake::default()
    };
    let error = tried(&request(), &broken, 1, folder.path())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("Input/output error") && error.contains("ashift=12"),
        "{error}"
    );
    assert!(error.contains("the machine is kept in"), "{error}");
}

#[test]
fn writes_of_parts_of_sectors_are_not_advised_and_reasons_name_neighbours() {
    let folder = tempfile::tempdir().unwrap();
    let request = request();
    let tried = tried(&request, &Fake::default(), 1, folder.path()).unwrap();
    let plan = Plan::of(Results {
        header: header(request),
        tried,
        confirmed: BTreeMap::new(),
    });
    let levels: Vec<usize> = plan.advice.iter().map(|advice| advice.redundancy).collect();
    assert_eq!(levels, [0, 1]);
    for advice in &plan.advice {
        assert_eq!(plan.rows[advice.take].combination.ashift, 12);
        assert!(advice.front.contains(&advice.take));
        let reasons = advice.reasons.join("\n");
        assert!(
            reasons.contains("up to 4000 times, this one 3"),
            "{reasons}"
        );
        assert!(reasons.contains("With ashift=9: space -4"), "{reasons}");
        assert!(
            advice.commands[0].contains("DISK1"),
            "{:?}",
            advice.commands
        );
    }
    let text = plan.text();
    assert!(
        text.contains("one drive may be lost") && text.contains("zpool create -o ashift=12"),
        "{text}"
    );
    let page = lab::plan::page(&plan, "ashift plan again <it>");
    assert!(page.contains("<svg") && page.contains("again &lt;it&gt;"));
    assert!(!page.contains("NaN"), "{page}");
}

/// Of figures that nearly equal, each may be a little better than the next, all around: one is still to be taken.
#[test]
fn nearly_equal_combinations_do_not_drop_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let mut request = request();
    request.special.clear();
    request.layouts = vec![Layout::RaidZ(1)];
    request.ashifts = vec![12, 13, 14];
    request.recordsizes.pop();
    let mut tried = tried(&request, &Fake::default(), 1, folder.path()).unwrap();
    let percent = [[0, 2, 4], [4, 0, 2], [2, 4, 0]];
    for (how, [space, copy, read]) in tried.values_mut().zip(percent) {
        let Tried::Measured(figures) = how else {
            panic!("it fits")
        };
        let value = |percent| 100.0 + f64::from(percent);
        figures.space.used = value(space);
        figures.copy.seconds = value(copy);
        figures.read.seconds = value(read);
        (figures.walk.seconds, figures.scrub.seconds, figures.replace) = (0.0, 1.0, None);
        figures.partial_writes = 0;
    }
    let plan = Plan::of(Results {
        header: header(request),
        tried,
        confirmed: BTreeMap::new(),
    });
    assert_eq!(plan.advice.len(), 1);
    assert!(!plan.advice[0].front.is_empty());
}

#[test]
fn values_that_no_pool_takes_are_found_before_anything_is_measured() {
    struct Picky(Fake);
    impl Shell for Picky {
        fn create(&self, machine: &Path, plan: &MachinePlan) -> Result<()> {
            self.0.create(machine, plan)
        }
        fn run(&self, machine: &Path, words: &[String]) -> Result<Answer> {
            assert_eq!(words[1], "create", "nothing else is run");
            let mut answer = self.0.run(machine, words)?;
            if words.contains(&"recordsize=3K".to_owned()) {
                (answer.code, answer.complaints) = (1, "'recordsize' must be power of 2".into());
            }
            Ok(answer)
        }
        fn traces(&self, _: &Path) -> Result<Vec<DriveTrace>> {
            Err(Error::invalid("nothing was run"))
        }
    }
    fn check(request: &Request) -> Result<()> {
        let trial = Trial {
            request,
            files: PathBuf::new(),
            machines: PathBuf::from("/nowhere"),
            one_in: 1,
            scale: 1.0,
            jobs: 1,
            keep: false,
        };
        trial.check(&Picky(Fake::default()))
    }
    let mut request = request();
    check(&request).unwrap();
    request.recordsizes.push("3K".into());
    let error = check(&request).unwrap_err().to_string();
    assert!(
        error.contains("must be power of 2") && error.contains("recordsize=3K"),
        "{error}"
    );
    request.layouts.push(Layout::RaidZ(3));
    assert!(request.check().is_ok(), "three of four hold parity");
    request.layouts.push(Layout::Mirrors);
    request.drives.pop();
    let error = request.check().unwrap_err().to_string();
    assert!(
        error.contains("not possible with 3 drives; try stripe, mirror, raidz1"),
        "{error}"
    );
}

/// 600 files of many sizes in 40 folders of folders, 50 links, a large file and what cannot be taken.
fn tree(root: &Path) -> u64 {
    let mut bytes = 0;
    for at in 0..600usize {
        let folder = root.join(format!("d{:02}/e{:02}", at % 8, at % 40));
        fs::create_dir_all(&folder).unwrap();
        let size = at * at / 3 + 10;
        fs::write(folder.join(format!("file{at}")), vec![at as u8; size]).unwrap();
        bytes += size as u64;
        if at < 50 {
            symlink(format!("file{at}"), folder.join(format!("link{at}"))).unwrap();
        }
    }
    fs::hard_link(root.join("d00/e00/file0"), root.join("again")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, root.join("pipe"), rustix::fs::Mode::RUSR).unwrap();
    let large = fs::File::create(root.join("large")).unwrap();
    large.set_len(200 << 20).unwrap();
    bytes + (200 << 20)
}

#[test]
fn a_sample_has_an_nth_of_everything() {
    let folder = tempfile::tempdir().unwrap();
    let (data, sample) = (folder.path().join("data"), folder.path().join("sample"));
    let bytes = tree(&data);
    let survey = Survey::of(&data, &|_| ()).unwrap();
    let found = survey.found.clone();
    assert_eq!((found.files, found.folders, found.links), (601, 49, 50));
    assert_eq!(
        (found.bytes, found.left_out),
        (bytes, 2),
        "the further name and the pipe"
    );
    assert_eq!(survey.one_in(None), 1);
    assert_eq!(survey.one_in(Some(bytes / 5 - 1)), 6);
    let made = survey.sample(5);
    survey.copy_sample(5, &sample, &|_| Ok(())).unwrap();
    assert_eq!(made.one_in, 5);
    let again = Survey::of(&sample, &|_| ()).unwrap().found;
    assert_eq!(
        (again.files, again.bytes, again.folders),
        (made.files, made.bytes, made.folders)
    );
    // 600 small files, and one that the pieces of the large one make.
    assert_eq!((again.files, again.links, again.folders), (121, 10, 10));
    let off = made.scale(bytes) / 5.0 - 1.0;
    assert!(off.abs() < 0.01, "sizes as they were distributed: {off}");
    let large = fs::metadata(sample.join("large")).unwrap();
    assert_eq!(large.len(), 40 << 20);
    assert!(
        std::os::unix::fs::MetadataExt::blocks(&large) < 16,
        "holes stay holes"
    );
    assert_eq!(
        Survey::of(&data, &|_| ()).unwrap().found,
        found,
        "nothing was changed"
    );
}

/// Many folders of one file, some of eight, two of 64, and 12 files of 3 MiB.
#[test]
fn a_sample_has_as_many_small_and_large_folders_and_files_as_there_should_be() {
    let folder = tempfile::tempdir().unwrap();
    let (data, sample) = (folder.path().join("data"), folder.path().join("sample"));
    let kinds = [("one", 96, 1), ("some", 24, 8), ("many", 2, 64)];
    for (name, folders, files) in kinds {
        for (at, file) in (0..folders).flat_map(|at| (0..files).map(move |file| (at, file))) {
            let folder = data.join(format!("{name}{at}"));
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join(format!("f{file}")), "text").unwrap();
        }
    }
    for at in 0..12 {
        let large = fs::File::create(data.join(format!("one{at}/large"))).unwrap();
        large.set_len(3 << 20).unwrap();
    }
    let survey = Survey::of(&data, &|_| ()).unwrap();
    survey.copy_sample(4, &sample, &|_| Ok(())).unwrap();
    let inside = |folder: &Path| -> Vec<fs::DirEntry> {
        let entries = fs::read_dir(folder).unwrap();
        entries.map(std::result::Result::unwrap).collect()
    };
    let mut folders = vec![sample.clone()];
    let below = inside(&sample).into_iter().map(|entry| entry.path());
    folders.extend(below.filter(|path| path.is_dir()));
    let all: Vec<Vec<fs::DirEntry>> = folders.iter().map(|folder| inside(folder)).collect();
    let sizes = all.iter().flatten();
    let large = sizes.map(|entry| entry.metadata().unwrap().len() >> 20);
    let large: Vec<u64> = large.filter(|mib| *mib > 0).collect();
    assert_eq!(
        large, [3; 3],
        "a quarter of the large files, as long as they were"
    );
    let with = |entries: std::ops::Range<usize>| {
        let lengths = all.iter().map(Vec::len);
        lengths.filter(|length| entries.contains(length)).count()
    };
    // The two large ones, and the folder in which all are, became one.
    let found = (all.len(), with(0..5), with(5..15), with(50..70));
    assert_eq!(found, (31, 24, 6, 1));
}

#[test]
fn a_sample_of_one_is_a_copy() {
    let folder = tempfile::tempdir().unwrap();
    let (data, sample) = (folder.path().join("data"), folder.path().join("sample"));
    fs::create_dir_all(data.join("a/b")).unwrap();
    fs::write(data.join("a/b/c"), b"text").unwrap();
    let long_ago = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000);
    fs::File::options()
        .write(true)
        .open(data.join("a/b/c"))
        .unwrap()
        .set_modified(long_ago)
        .unwrap();
    let survey = Survey::of(&data, &|_| ()).unwrap();
    survey.copy_sample(1, &sample, &|_| Ok(())).unwrap();
    assert_eq!(fs::read(sample.join("a/b/c")).unwrap(), b"text");
    assert_eq!(
        fs::metadata(sample.join("a/b/c"))
            .unwrap()
            .modified()
            .unwrap(),
        long_ago
    );
    assert!(
        Survey::of(&data.join("a/b/c"), &|_| ()).is_err(),
        "not a folder"
    );
    fs::create_dir(folder.path().join("none")).unwrap();
    let error = Survey::of(&folder.path().join("none"), &|_| ())
        .err()
        .unwrap()
        .to_string();
    assert!(error.contains("no files"), "{error}");
    let ended = |_| Err(Error::invalid("ended"));
    let error = survey.copy_sample(1, &folder.path().join("part"), &ended);
    assert_eq!(error.unwrap_err().to_string(), "ended");
}

#[test]
fn a_journal_goes_on_where_it_was_cut() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("below/results");
    let header = header(request());
    {
        let (journal, tried) = Journal::open(&path, &header).unwrap();
        assert!(tried.is_empty());
        let error = Journal::open(&path, &header).err().unwrap().to_string();
        assert!(error.contains("another run"), "{error}");
        journal.add(3, Tried::DoesNotFit).unwrap();
        journal.add(5, Tried::DoesNotFit).unwrap();
    }
    let whole = fs::read(&path).unwrap();
    let first_line = whole.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    for cut in 0..=whole.len() {
        fs::write(&path, &whole[..cut]).unwrap();
        let (journal, tried) = Journal::open(&path, &header).unwrap();
        let lines = whole[..cut].iter().filter(|byte| **byte == b'\n').count();
        assert_eq!(
            tried.len(),
            lines.saturating_sub(1),
            "cut at {cut} of {}",
            whole.len()
        );
        assert!(fs::metadata(&path).unwrap().len() >= first_line as u64);
        journal.add(7, Tried::DoesNotFit).unwrap();
        drop(journal);
        assert!(Results::load(&path).unwrap().tried.contains_key(&7));
    }
    let mut other = header.clone();
    other.found.fingerprint = 1;
    let error = Journal::open(&path, &other).err().unwrap().to_string();
    assert!(error.contains("the files have changed since"), "{error}");
    fs::write(&path, "something else\n").unwrap();
    let error = Journal::open(&path, &header).err().unwrap().to_string();
    assert!(error.contains("no results of a plan"), "{error}");
    assert_eq!(
        fs::read(&path).unwrap(),
        b"something else\n",
        "a file of somebody's is left as it is"
    );
    fs::write(&path, "without an end").unwrap();
    let error = Journal::open(&path, &header).err().unwrap().to_string();
    assert!(error.contains("no results of a plan"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), b"without an end");
}

#[test]
fn what_is_advised_may_be_confirmed_with_all_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("results");
    let request = request();
    let mut header = header(request.clone());
    header.sample.one_in = 8;
    let (journal, _) = Journal::open(&path, &header).unwrap();
    let sampled = tried(&request, &Fake::default(), 8, folder.path()).unwrap();
    for (place, how) in &sampled {
        journal.add(*place, *how).unwrap();
    }
    let plan = Plan::of(Results::load(&path).unwrap());
    let places = plan.to_confirm();
    let taken: Vec<usize> = plan.advice.iter().map(|advice| advice.take).collect();
    assert_eq!(places, taken);
    assert!(!plan.text().contains("with all files"));
    let whole = tried(&request, &Fake::default(), 1, folder.path()).unwrap();
    journal.confirm(places[0], whole[&places[0]]).unwrap();
    journal.confirm(places[1], Tried::DoesNotFit).unwrap();
    let plan = Plan::of(Results::load(&path).unwrap());
    assert_eq!(plan.rows[places[0]].tried, Some(sampled[&places[0]]));
    assert_eq!(plan.rows[places[0]].confirmed, Some(whole[&places[0]]));
    assert!(plan.to_confirm().is_empty());
    for said in [plan.text(), lab::plan::page(&plan, "again")] {
        assert!(
            said.contains("copy 10 s, list 10 s, read 10 s, scrub 10 s"),
            "{said}"
        );
        assert!(said.contains("with all files: no room"), "{said}");
    }
    drop(journal);
    let (_, known) = Journal::open(&path, &header).unwrap();
    assert_eq!(
        known, sampled,
        "what was confirmed was tried with a sample all the same"
    );
    header.sample.one_in = 1;
    let all = Results {
        header,
        tried: sampled,
        confirmed: BTreeMap::new(),
    };
    assert!(Plan::of(all).to_confirm().is_empty(), "there is no sample");
}

#[test]
fn parts_are_merged_to_the_whole() {
    let folder = tempfile::tempdir().unwrap();
    let request = request();
    let all = tried(&request, &Fake::default(), 1, folder.path()).unwrap();
    let mut paths = Vec::new();
    for at in 1..=3 {
        let shard = Shard::parse(&format!("{at}/3")).unwrap();
        let path = folder.path().join(format!("part{at}"));
        let header = Header {
            shard,
            ..header(request.clone())
        };
        let (journal, _) = Journal::open(&path, &header).unwrap();
        for (place, tried) in all.iter().filter(|(place, _)| shard.has(**place)) {
            journal.add(*place, *tried).unwrap();
        }
        paths.push(path);
    }
    let merged = Results::merge(&paths).unwrap();
    assert_eq!(
        merged,
        Results {
            header: header(request.clone()),
            tried: all,
            confirmed: BTreeMap::new(),
        }
    );
    let two = Plan::of(Results::merge(&paths[..2]).unwrap());
    assert_eq!(two.missing(), 8);
    assert!(
        two.text()
            .contains("8 of 24 combinations have not been tried yet")
    );
    let mut strange = header(request);
    strange.request.seed = 2;
    drop(Journal::open(&folder.path().join("strange"), &strange).unwrap());
    paths.push(folder.path().join("strange"));
    let error = Results::merge(&paths).unwrap_err().to_string();
    assert!(error.contains("strange: another plan"), "{error}");
    for wrong in ["0/3", "4/3", "1", "a/b", "1/0"] {
        assert!(Shard::parse(wrong).is_err(), "{wrong}");
    }
}
