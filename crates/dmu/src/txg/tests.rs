//! The state machine, over a sync that only records its calls.

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;

/// Takes a while to sync; fails when told.
#[derive(Default)]
struct Recorder {
    frozen: Mutex<Vec<u64>>,
    synced: Mutex<Vec<u64>>,
    sync_ns: u64,
    fail_at: Option<u64>,
}

impl TxgSync for Recorder {
    fn freeze(&self, txg: Txg) {
        self.frozen.lock().push(txg.0);
    }

    fn sync(&self, txg: Txg) -> Result<()> {
        rt::sleep_ns(self.sync_ns);
        if self.fail_at == Some(txg.0) {
            return Err(Error::new(ErrorKind::Io, "the disk is gone"));
        }
        self.synced.lock().push(txg.0);
        Ok(())
    }
}

fn start(recorder: Recorder, settings: TxgSettings) -> (Arc<TxGroups>, Arc<Recorder>) {
    let recorder = Arc::new(recorder);
    let groups = TxGroups::new(Txg(10), settings);
    groups.start(Arc::clone(&recorder) as Arc<dyn TxgSync>);
    (groups, recorder)
}

const SECOND: u64 = 1_000_000_000;

#[test]
fn sim_an_idle_pool_does_not_sync_and_a_dirty_one_does_in_time() {
    rt::simulate(1, || {
        let (groups, recorder) = start(Recorder::default(), TxgSettings::default());
        rt::sleep_ns(100 * SECOND);
        assert!(recorder.synced.lock().is_empty());
        let tx = groups.hold_open(0).unwrap();
        groups.note_dirty(1);
        drop(tx);
        rt::sleep_ns(49 * SECOND / 10);
        assert!(recorder.synced.lock().is_empty());
        rt::sleep_ns(SECOND / 5);
        assert_eq!(*recorder.synced.lock(), [11]);
        assert_eq!((groups.open_txg(), groups.synced_txg()), (Txg(12), Txg(11)));
        groups.stop().unwrap();
        assert_eq!(*recorder.synced.lock(), [11], "nothing more to write");
    });
}

#[test]
fn stop_syncs_what_is_open() {
    let (groups, recorder) = start(Recorder::default(), TxgSettings::default());
    let tx = groups.hold_open(0).unwrap();
    groups.note_dirty(100);
    drop(tx);
    groups.stop().unwrap();
    assert_eq!(*recorder.synced.lock(), [11]);
    assert_eq!(
        groups.hold_open(0).unwrap_err().kind(),
        ErrorKind::Suspended
    );
    assert_eq!(
        groups.wait_synced(Txg(12)).unwrap_err().kind(),
        ErrorKind::Suspended
    );
}

#[test]
fn waiting_syncs_even_an_unchanged_txg() {
    let (groups, recorder) = start(Recorder::default(), TxgSettings::default());
    assert_eq!(groups.sync_all().unwrap(), Txg(11));
    groups.wait_synced(Txg(14)).unwrap();
    groups.wait_open(Txg(17)).unwrap();
    groups.stop().unwrap();
    assert_eq!(*recorder.synced.lock(), [11, 12, 13, 14, 15, 16]);
    assert_eq!(*recorder.frozen.lock(), *recorder.synced.lock());
}

#[test]
fn sim_a_held_txg_is_not_frozen() {
    rt::simulate(3, || {
        let (groups, recorder) = start(Recorder::default(), TxgSettings::default());
        let tx = groups.hold_open(0).unwrap();
        groups.kick();
        rt::sleep_ns(SECOND);
        assert!(recorder.frozen.lock().is_empty());
        let waiter = {
            let groups = Arc::clone(&groups);
            rt::spawn("waiter", move || groups.hold_open(0).unwrap().txg())
        };
        rt::sleep_ns(SECOND);
        assert!(!waiter.is_finished(), "quiescing: nobody gets in");
        drop(tx);
        assert_eq!(waiter.join(), Txg(12));
        groups.stop().unwrap();
    });
}

#[test]
fn sim_writers_are_slowed_down_and_never_beyond_the_maximum() {
    rt::simulate(5, || {
        let settings = TxgSettings {
            dirty_data_max: 1 << 20,
            ..TxgSettings::default()
        };
        let recorder = Recorder {
            sync_ns: SECOND / 10,
            ..Recorder::default()
        };
        let (groups, _recorder) = start(recorder, settings);
        let most = Arc::new(AtomicU64::new(0));
        let writers: Vec<_> = (0..4)
            .map(|n| {
                let (groups, most) = (Arc::clone(&groups), Arc::clone(&most));
                rt::spawn(&format!("writer {n}"), move || {
                    for _ in 0..1000 {
                        let tx = groups.hold_open(4096).unwrap();
                        groups.note_dirty(4096);
                        most.fetch_max(groups.dirty_bytes(), Ordering::Relaxed);
                        drop(tx);
                    }
                })
            })
            .collect();
        writers.into_iter().for_each(rt::JoinHandle::join);
        let most = most.load(Ordering::Relaxed);
        assert!(most <= (1 << 20) + 4 * 4096, "{most} bytes");
        assert!(most >= 600_000, "{most} bytes: delayed too early");
        groups.stop().unwrap();
        assert_eq!(groups.dirty_bytes(), 0);
    });
}

#[test]
fn sim_a_hold_for_the_log_does_not_wait_for_dirty_data() {
    rt::simulate(6, || {
        let settings = TxgSettings {
            dirty_data_max: 1 << 20,
            ..TxgSettings::default()
        };
        let recorder = Recorder {
            sync_ns: 10 * SECOND,
            ..Recorder::default()
        };
        let (groups, _recorder) = start(recorder, settings);
        let tx = groups.hold_open(0).unwrap();
        groups.note_dirty(2 << 20);
        drop(tx);
        // The txg is being written, and takes its time.
        rt::sleep_ns(SECOND);
        let begun = rt::now_ns();
        drop(groups.hold_open_unthrottled().unwrap());
        assert_eq!(rt::now_ns(), begun);
        drop(groups.hold_open(4096).unwrap());
        assert!(rt::now_ns() - begun > 8 * SECOND, "others wait");
        groups.stop().unwrap();
    });
}

#[test]
fn a_failed_txg_suspends_the_pool_for_everybody() {
    let recorder = Recorder {
        fail_at: Some(12),
        ..Recorder::default()
    };
    let (groups, recorder) = start(recorder, TxgSettings::default());
    groups.sync_all().unwrap();
    let told = Arc::new(Mutex::new(Vec::new()));
    let tx = groups.hold_open(0).unwrap();
    let record = Arc::clone(&told);
    tx.on_synced(move |result| record.lock().push(result.unwrap_err().kind()));
    drop(tx);
    let error = groups.sync_all().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Suspended);
    assert!(error.context().contains("the disk is gone"), "{error}");
    assert_eq!(
        groups.hold_open(0).unwrap_err().kind(),
        ErrorKind::Suspended
    );
    assert!(groups.suspended().is_some());
    assert_eq!(groups.stop().unwrap_err().kind(), ErrorKind::Suspended);
    assert_eq!(*told.lock(), [ErrorKind::Suspended]);
    assert_eq!(*recorder.synced.lock(), [11]);
}

#[test]
fn callbacks_come_after_their_txg() {
    let (groups, _recorder) = start(Recorder::default(), TxgSettings::default());
    let told = Arc::new(Mutex::new(Vec::new()));
    for n in 0..3 {
        let tx = groups.hold_open(0).unwrap();
        let (record, groups2) = (Arc::clone(&told), Arc::clone(&groups));
        let txg = tx.txg();
        tx.on_synced(move |result| {
            assert!(result.is_ok());
            assert!(groups2.synced_txg() >= txg);
            record.lock().push(n);
        });
        drop(tx);
        groups.sync_all().unwrap();
    }
    groups.stop().unwrap();
    assert_eq!(*told.lock(), [0, 1, 2]);
}

fn many_threads() {
    let (groups, recorder) = start(
        Recorder {
            sync_ns: 1000,
            ..Recorder::default()
        },
        TxgSettings::default(),
    );
    let threads: Vec<_> = (0..8)
        .map(|n| {
            let groups = Arc::clone(&groups);
            rt::spawn(&format!("thread {n}"), move || {
                for i in 0..100 {
                    let tx = groups.hold_open(10).unwrap();
                    groups.note_dirty(10);
                    rt::yield_now();
                    let txg = tx.txg();
                    drop(tx);
                    match (i + n) % 10 {
                        0 => groups.wait_synced(txg).unwrap(),
                        1 => groups.wait_open(txg.next()).unwrap(),
                        2 => groups.kick(),
                        _ => {}
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(rt::JoinHandle::join);
    groups.stop().unwrap();
    let synced = recorder.synced.lock();
    assert!(synced.windows(2).all(|w| w[0] + 1 == w[1]), "{synced:?}");
    assert_eq!(groups.dirty_bytes(), 0);
}

#[test]
fn many_threads_hold_and_wait() {
    many_threads();
}

#[test]
fn sim_many_threads_hold_and_wait() {
    for seed in 0..20 {
        rt::simulate(seed, many_threads);
    }
}

#[test]
fn sim_only_io_issued_since_the_last_resume_suspends_the_pool() {
    use zio::{FailedIo, Suspend};
    rt::simulate(9, || {
        let groups = TxGroups::new(Txg(10), TxgSettings::default());
        let error = || Error::new(ErrorKind::Io, "gone");
        let before = groups.resumed_count();
        let waits = groups.clone();
        let io = rt::spawn("io", move || {
            waits.wait_resumed(FailedIo::Write, before, error())
        });
        rt::sleep_ns(1);
        assert_eq!(groups.suspended().as_deref(), Some("gone"));
        groups.resume();
        io.join().unwrap();
        assert_eq!(groups.suspended(), None);
        // This one was issued before the resume, and fails only now.
        let late = groups.wait_resumed(FailedIo::Write, before, error());
        late.unwrap();
        assert_eq!(groups.suspended(), None);
        groups.abandon();
        let now = groups.resumed_count();
        let refused = groups.wait_resumed(FailedIo::Write, now, error());
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Io);
    });
}
