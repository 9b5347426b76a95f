//! What gnop makes of a disk.

use std::sync::{Arc, mpsc};

use base::{Buf, ErrorKind, Result};
use geom::nop::{Nop, NopChange, NopConfig, NopCounters, name_for};
use geom::{Bio, BioOp, Command, Provider, Shape};
use ram::Memory;

fn disk() -> Arc<Memory> {
    Arc::new(Memory::with_sectors("ada0", 1 << 20, 512, 4096))
}

fn on_disk(config: NopConfig) -> Result<Arc<Nop>> {
    Nop::new(disk(), "ada0.nop", config)
}

fn config(change: impl FnOnce(&mut NopConfig)) -> NopConfig {
    let mut config = NopConfig::default();
    change(&mut config);
    config
}

#[test]
fn says_what_the_config_says_and_inherits_no_physical_sector() {
    let plain = on_disk(NopConfig::default()).unwrap();
    assert_eq!((plain.sectorsize(), plain.stripesize()), (512, 512));
    assert_eq!(plain.mediasize(), 1 << 20);
    let big = on_disk(config(|c| (c.offset, c.secsize) = (512, 4096))).unwrap();
    assert_eq!((big.sectorsize(), big.stripesize()), (4096, 4096));
    assert_eq!(big.mediasize(), (1 << 20) - 4096);
    let striped = on_disk(config(|c| (c.stripesize, c.stripeoffset) = (4096, 3584))).unwrap();
    assert_eq!((striped.stripesize(), striped.stripeoffset()), (4096, 3584));
    let part = on_disk(config(|c| (c.offset, c.size) = (4096, 8192))).unwrap();
    assert_eq!(part.mediasize(), 8192);
}

#[test]
fn refuses_in_the_words_of_gnop() {
    let refused = |change: fn(&mut NopConfig)| {
        let error = on_disk(config(change)).err().expect("an error");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        error.to_string()
    };
    let offset = "Invalid offset for provider ada0.";
    assert_eq!(refused(|c| c.offset = 100), offset);
    assert_eq!(refused(|c| c.offset = 1 << 20), offset);
    let size = "Invalid size for provider ada0.";
    assert_eq!(refused(|c| c.size = 100), size);
    assert_eq!(refused(|c| c.size = (1 << 20) + 512), size);
    assert_eq!(refused(|c| (c.offset, c.size) = (512, 1 << 20)), size);
    assert_eq!(
        refused(|c| (c.offset, c.size) = (512, u64::MAX - 511)),
        size
    );
    let secsize = "Invalid secsize for provider ada0.";
    assert_eq!(refused(|c| c.secsize = 1000), secsize);
    assert_eq!(refused(|c| c.secsize = 1536), secsize);
    assert_eq!(refused(|c| c.secsize = 2 << 20), "secsize is too big.");
    assert_eq!(
        refused(|c| c.stripesize = 1000),
        "Invalid stripesize for provider ada0."
    );
    assert_eq!(
        refused(|c| c.stripeoffset = 1000),
        "Invalid stripeoffset for provider ada0."
    );
    assert_eq!(
        refused(|c| (c.stripesize, c.stripeoffset) = (4096, 4096)),
        "stripeoffset is too big."
    );
    assert_eq!(
        refused(|c| c.rfailprob = 101),
        "Invalid 'rfailprob' argument"
    );
    assert_eq!(
        refused(|c| c.wdelayprob = 101),
        "Invalid 'wdelayprob' argument"
    );
    assert_eq!(refused(|c| c.delaymsec = 0), "Invalid 'delaymsec' argument");
}

#[test]
fn names_have_a_suffix() {
    assert_eq!(name_for("gpt/d1", None).unwrap(), "gpt/d1.nop");
    assert_eq!(name_for("gpt/d1", Some("x1")).unwrap(), "x1.nop");
    for bad in ["", "a b", "a/b", &"x".repeat(70)] {
        assert!(name_for("ada0", Some(bad)).is_err(), "{bad}");
    }
    assert!(name_for(&"x".repeat(59), None).is_ok());
    let error = name_for(&"x".repeat(60), None).unwrap_err();
    assert_eq!(error.to_string(), "Invalid provider name.");
    let path = format!("/{}", "x".repeat(100));
    assert!(name_for(&path, None).is_ok(), "a file of the host");
}

#[test]
fn passes_on_what_it_gets_at_its_offset() {
    let disk = disk();
    let nop = Nop::new(disk.clone(), "n", config(|c| c.offset = 4096)).unwrap();
    nop.write(512, &[7; 512]).unwrap();
    let mut back = [0; 512];
    disk.read(4608, &mut back).unwrap();
    assert_eq!(back, [7; 512]);
    nop.execute(0, Command::Write(&[&[1; 512], &[2; 512]]))
        .unwrap();
    nop.read(512, &mut back).unwrap();
    assert_eq!(back, [2; 512]);
    nop.delete(0, 1024).unwrap();
    nop.flush().unwrap();
    let counters = nop.counters();
    assert_eq!((counters.reads, counters.writes), (1, 2));
    assert_eq!((counters.deletes, counters.flushes), (1, 1));
    assert_eq!((counters.read_bytes, counters.wrote_bytes), (512, 1536));
    nop.set_counters(NopCounters::default());
    assert_eq!(nop.counters(), NopCounters::default());
}

#[test]
fn what_is_off_its_sectors_is_not_even_counted() {
    let nop = on_disk(config(|c| (c.secsize, c.rfailprob) = (4096, 100))).unwrap();
    let mut sector = [0; 512];
    for (offset, len) in [(0, 512), (512, 512), (1 << 20, 512)] {
        let error = nop.read(offset, &mut sector[..len]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    }
    assert!(nop.write(512, &[0; 4096]).is_err());
    assert!(nop.delete(0, 512).is_err());
    assert_eq!(nop.counters(), NopCounters::default());
}

#[test]
fn everything_fails_when_the_count_is_down() {
    let nop = on_disk(config(|c| (c.count_until_fail, c.error) = (4, 28))).unwrap();
    let mut sector = [0; 512];
    nop.read(0, &mut sector).unwrap();
    nop.flush().unwrap();
    nop.delete(0, 512).unwrap();
    let error = nop.write(0, &sector).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    assert_eq!(error.to_string(), "ada0.nop: returning error=28");
    assert!(nop.read(0, &mut sector).is_err());
    nop.flush().unwrap();
    nop.delete(0, 512).unwrap();
    let now = nop.config();
    assert_eq!((now.count_until_fail, now.rfailprob), (0, 100));
    // The failed ones are counted too.
    assert_eq!((nop.counters().reads, nop.counters().writes), (2, 1));
    nop.configure(&NopChange {
        rfailprob: Some(0),
        ..NopChange::default()
    })
    .unwrap();
    nop.read(0, &mut sector).unwrap();
    assert!(nop.write(0, &sector).is_err());
    let bad = NopChange {
        wfailprob: Some(0),
        delaymsec: Some(0),
        ..NopChange::default()
    };
    assert!(nop.configure(&bad).is_err());
    assert_eq!(nop.config().wfailprob, 100);
}

#[test]
fn sim_chances_are_met_and_come_from_the_seed() {
    let run = |seed| {
        rt::simulate(seed, || {
            let nop = on_disk(config(|c| {
                (c.rfailprob, c.wdelayprob, c.delaymsec) = (30, 50, 20);
            }))
            .unwrap();
            let mut sector = [0; 512];
            let failed = (0..1000)
                .filter(|_| nop.read(0, &mut sector).is_err())
                .count();
            assert_eq!(rt::now_ns(), 0);
            for _ in 0..1000 {
                nop.write(0, &sector).unwrap();
            }
            (failed, rt::now_ns())
        })
    };
    let (failed, ns) = run(1);
    assert!((250..350).contains(&failed), "{failed} of 1000");
    assert_eq!(ns % 20_000_000, 0);
    assert!((450..550).contains(&(ns / 20_000_000)), "{ns} ns");
    assert_eq!(run(1), (failed, ns));
    assert_ne!(run(2), (failed, ns));
}

/// A provider that answers asynchronously.
struct Queued(Arc<Memory>);

impl Provider for Queued {
    fn name(&self) -> &str {
        self.0.name()
    }
    fn shape(&self) -> Shape {
        Shape {
            is_queued: true,
            ..self.0.shape()
        }
    }
    fn submit(&self, bio: Bio) {
        let disk = Arc::clone(&self.0);
        rt::at_ns(rt::now_ns() + 1_000_000, move || disk.submit(bio));
    }
}

#[test]
fn sim_delays_of_queued_commands_overlap() {
    let took = rt::simulate(3, || {
        let below = Arc::new(Queued(disk()));
        let nop = Nop::new(
            below,
            "n",
            config(|c| (c.wdelayprob, c.delaymsec, c.offset) = (100, 7, 512)),
        )
        .unwrap();
        assert!(nop.shape().is_queued);
        let (sender, receiver) = mpsc::channel();
        for n in 0..10 {
            let sender = sender.clone();
            nop.submit(Bio {
                op: BioOp::Write(Buf::copy_of(&[1; 512])),
                offset: n * 512,
                done: Box::new(move |result| sender.send(result).unwrap()),
            });
        }
        rt::sleep_ns(7_999_999);
        assert!(receiver.try_recv().is_err());
        rt::sleep_ns(1);
        rt::yield_now();
        assert!(receiver.try_iter().all(|result| result.is_ok()));
        let mut back = [0; 512];
        nop.read(512 * 9, &mut back).unwrap();
        assert_eq!(back, [1; 512]);
        rt::now_ns()
    });
    assert_eq!(took, 9_000_000);
}

#[test]
fn unknown_keys_in_a_config_are_refused() {
    let text = serde_json::to_string(&config(|c| c.secsize = 4096)).unwrap();
    assert_eq!(text, r#"{"secsize":4096,"error":5,"delaymsec":1}"#);
    let back: NopConfig = serde_json::from_str(r#"{"secsize":4096}"#).unwrap();
    assert_eq!(back, config(|c| c.secsize = 4096));
    assert!(serde_json::from_str::<NopConfig>(r#"{"sectorsize":4096}"#).is_err());
}
