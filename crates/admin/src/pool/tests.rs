//! Pools as the real tools showed them: the input is their JSON, the expected output their text.

use phys::PropValue;
use serde_json::Value;

use super::*;
use crate::golden::case_named;
use crate::listing::{GetRequest, Item, JsonStyle, Prop, Style, default_columns};
use crate::number::{NumberStyle, Zone, date_time, parse_number};
use crate::prop::{Source, TableKind, parse_list};

const ZPOOL_STATUS: &str = include_str!("../../tests/golden/zpool-status.txt");
const ZPOOL_LIST: &str = include_str!("../../tests/golden/zpool-list.txt");
const ZPOOL_GET: &str = include_str!("../../tests/golden/zpool-get.txt");
const ZPOOL_IMPORT: &str = include_str!("../../tests/golden/zpool-import.txt");

/// 21 November 2026, midnight: all of these were made that morning.
const DAY: u64 = 1_795_219_200;

fn number(value: &Value, name: &str) -> u64 {
    match &value[name] {
        Value::Null => 0,
        Value::Number(number) => number.as_u64().unwrap(),
        Value::String(text) => parse_number(text).unwrap(),
        other => panic!("{name} is {other}"),
    }
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or("")
}

/// Seconds since 1970 of `Sat Nov 21 08:11:43 UTC 2026`.
fn secs(value: &Value, name: &str) -> u64 {
    let clock = text(value, name).split(' ').nth(3).unwrap();
    let parts: Vec<u64> = clock.split(':').map(|p| p.parse().unwrap()).collect();
    DAY + parts[0] * 3600 + parts[1] * 60 + parts[2]
}

fn vdev(value: &Value, class: AllocClass) -> VdevStatus {
    let name = text(value, "name");
    let digit = |at: usize| u64::from(name.as_bytes()[at] - b'0');
    let kind = match text(value, "vdev_type") {
        "root" => VdevKind::Root,
        "disk" => VdevKind::Disk { is_whole: false },
        "mirror" => VdevKind::Mirror,
        "raidz" => VdevKind::Raidz { parity: digit(5) },
        "draid" => VdevKind::Draid {
            parity: digit(5),
            data: digit(7),
            spares: digit(13),
        },
        // The real tool does not find distributed spares by name, and prints almost nothing of them.
        "" | "dspare" => VdevKind::DraidSpare,
        "replacing" => VdevKind::Replacing,
        "spare" => VdevKind::Spare,
        "file" => VdevKind::File,
        other => panic!("vdev_type {other:?}"),
    };
    let state = match text(value, "state") {
        "ONLINE" | "AVAIL" | "INUSE" | "" => VdevState::Healthy,
        "OFFLINE" => VdevState::Offline,
        "DEGRADED" => VdevState::Degraded,
        "UNAVAIL" | "CANT_OPEN" => VdevState::CantOpen,
        "FAULTED" => VdevState::Faulted,
        other => panic!("state {other:?}"),
    };
    let id = name.rsplit_once('-').and_then(|(_, id)| id.parse().ok());
    let children = value["vdevs"].as_object();
    VdevStatus {
        kind,
        id: id.unwrap_or(0),
        guid: number(value, "guid"),
        path: match text(value, "vdev_type") {
            "" => Some(name.to_owned()),
            _ => value["path"].as_str().map(str::to_owned),
        },
        class,
        state,
        aux: match text(value, "aux") {
            "SPARED" => VdevAux::Spared,
            _ => VdevAux::None,
        },
        alloc_bytes: number(value, "alloc_space"),
        space_bytes: number(value, "total_space"),
        deflated_bytes: number(value, "def_space"),
        physical_bytes: number(value, "phys_space"),
        replaceable_bytes: number(value, "rep_dev_size"),
        healed_bytes: number(value, "self_healed"),
        read_errors: number(value, "read_errors"),
        write_errors: number(value, "write_errors"),
        checksum_errors: number(value, "checksum_errors"),
        scanned_bytes: number(value, "scan_processed"),
        children: children
            .iter()
            .flat_map(|c| c.values())
            .map(|c| vdev(c, class))
            .collect(),
        ..VdevStatus::default()
    }
}

fn scan(value: &Value) -> Option<ScanStatus> {
    let function = match text(value, "function") {
        "SCRUB" => ScanFunction::Scrub,
        "RESILVER" => ScanFunction::Resilver,
        _ => return None,
    };
    let state = match text(value, "state") {
        "SCANNING" => ScanState::Scanning,
        "CANCELED" => ScanState::Canceled,
        _ => ScanState::Finished,
    };
    Some(ScanStatus {
        function,
        state,
        start_secs: secs(value, "start_time"),
        end_secs: if state == ScanState::Scanning {
            0
        } else {
            secs(value, "end_time")
        },
        paused_secs: None,
        total_bytes: number(value, "to_examine"),
        examined_bytes: number(value, "examined"),
        skipped_bytes: number(value, "skipped"),
        issued_bytes: number(value, "issued"),
        processed_bytes: number(value, "processed"),
        errors: number(value, "errors"),
        pass_start_secs: number(value, "pass_start"),
        pass_paused_secs: 0,
        pass_examined_bytes: number(value, "bytes_per_scan"),
        pass_issued_bytes: number(value, "issued_bytes_per_scan"),
    })
}

/// The pools in the output of `zpool status -j`.
fn pools(name: &str) -> Vec<PoolStatus> {
    let json: Value = serde_json::from_str(&case_named(ZPOOL_STATUS, name).stdout).unwrap();
    let pools = json["pools"].as_object().unwrap();
    let pool = |value: &Value| {
        let name = text(value, "name").to_owned();
        let mut root = vdev(&value["vdevs"][&name], AllocClass::Normal);
        let below = |heading: &str, class| -> Vec<VdevStatus> {
            let vdevs = value[heading].as_object();
            vdevs
                .iter()
                .flat_map(|v| v.values())
                .map(|v| vdev(v, class))
                .collect()
        };
        for class in CLASSES {
            root.children.extend(below(heading(class), class));
        }
        let errors = value["errlist"].as_array();
        let error = |e: &Value| e.as_str().unwrap().to_owned();
        PoolStatus {
            name,
            guid: number(value, "pool_guid"),
            txg: number(value, "txg"),
            version: 5000,
            root,
            spares: below("spares", AllocClass::Normal),
            cache: below("l2cache", AllocClass::Normal),
            scan: scan(&value["scan_stats"]),
            error_count: Some(number(value, "error_count")),
            errors: errors.into_iter().flatten().map(error).collect(),
            ..PoolStatus::default()
        }
    };
    pools.values().map(pool).collect()
}

fn request() -> StatusRequest {
    StatusRequest::new(DAY, Zone::UTC)
}

/// Removes the advice, which is worded differently here.
fn without_advice(text: &str) -> String {
    let mut out = String::new();
    let mut is_advice = false;
    for line in text.lines() {
        is_advice = line.starts_with("status: ")
            || line.starts_with("action: ")
            || is_advice && line.starts_with('\t');
        if !is_advice {
            out += line;
            out.push('\n');
        }
    }
    out
}

fn check_status(pools: &[PoolStatus], request: &StatusRequest, name: &str) {
    let texts: Vec<String> = pools.iter().map(|pool| status(pool, request)).collect();
    let real = case_named(ZPOOL_STATUS, name).stdout;
    assert_eq!(
        without_advice(&texts.join("\n")),
        without_advice(&real),
        "{name}"
    );
    assert_eq!(
        texts.concat().contains("status: "),
        real.contains("status: "),
        "{name}"
    );
}

#[test]
fn healthy_pool_with_every_class() {
    let pools = pools("status-jint");
    check_status(&pools, &request(), "status");
    let names = NameStyle::default();
    let with = |names| StatusRequest { names, ..request() };
    check_status(
        &pools,
        &with(NameStyle {
            is_full_path: true,
            ..names
        }),
        "status-P",
    );
    check_status(
        &pools,
        &with(NameStyle {
            is_guid: true,
            ..names
        }),
        "status-g",
    );
    check_status(
        &pools,
        &StatusRequest {
            has_slow: true,
            ..request()
        },
        "status-s",
    );
    check_status(
        &pools,
        &StatusRequest {
            has_direct: true,
            ..request()
        },
        "status-d",
    );
    check_status(
        &pools,
        &StatusRequest {
            has_initialize: true,
            ..request()
        },
        "status-i",
    );
    check_status(
        &pools,
        &StatusRequest {
            numbers: NumberStyle::Exact,
            ..request()
        },
        "status-p",
    );
}

#[test]
fn pools_with_something_the_matter() {
    let same_moment = [
        ("status-j-offline", "status-offline"),
        ("status-scrubbed-j", "status-scrubbed"),
        ("status-spared-j", "status-spared"),
        ("status-cksum-j", "status-cksum"),
        ("status-draid-j", "status-draid"),
        ("status-two-j", "status-two"),
    ];
    for (json, text) in same_moment {
        check_status(&pools(json), &request(), text);
    }
    let unhealthy = StatusRequest {
        only_unhealthy: true,
        ..request()
    };
    check_status(&pools("status-j-offline"), &unhealthy, "status-e-offline");
    check_status(&pools("status-cksum-j"), &unhealthy, "status-cksum-e");
    let verbose = StatusRequest {
        is_verbose: true,
        ..request()
    };
    check_status(&pools("status-rot-vj"), &verbose, "status-rot-v");
}

#[test]
fn devices_that_are_gone_or_faulted() {
    let mut missing = pools("status-cksum-j").remove(0);
    let mirror = &mut missing.root.children[0];
    (missing.root.state, mirror.state) = (VdevState::Degraded, VdevState::Degraded);
    let gone = &mut mirror.children[1];
    gone.checksum_errors = 0;
    gone.state = VdevState::CantOpen;
    gone.aux = VdevAux::CorruptData;
    gone.is_not_present = true;
    assert_eq!(diagnose(&missing, false), Reason::CorruptLabelR);
    let got = status(&missing, &request());
    assert!(got.contains("  was /dev/vdb1\n"), "{got}");

    let mut faulted = pools("status-scrubbed-j").remove(0);
    let disk = &mut faulted.root.children[1].children[1];
    (disk.state, disk.aux) = (VdevState::Faulted, VdevAux::External);
    assert_eq!(diagnose(&faulted, false), Reason::FaultedDevR);
    let got = status(&faulted, &request());
    assert!(
        got.contains("FAULTED      0     0     0  external device fault\n"),
        "{got}"
    );
}

#[test]
fn coarse_sectors_are_told() {
    let mut pool = pools("status-jint").remove(0);
    let disk = &mut pool.root.children[0].children[0];
    (disk.configured_ashift, disk.physical_ashift) = (9, 12);
    assert_eq!(diagnose(&pool, false), Reason::NonNativeAshift);
    let got = status(&pool, &request());
    assert!(
        got.contains("  block size: 512B configured, 4096B native\n"),
        "{got}"
    );
}

#[test]
fn scans_tell_how_far_they_are() {
    let mut pool = pools("status-scrubbed-j").remove(0);
    pool.root.children[0].children[1].checksum_errors = 33;
    pool.root.children[0].children[1].scanned_bytes = 1;
    let start = DAY + 8 * 3600 + 11 * 60 + 41;
    pool.scan = Some(ScanStatus {
        state: ScanState::Scanning,
        start_secs: start,
        total_bytes: (50.2 * 1048576.0) as u64,
        examined_bytes: (17.3 * 1048576.0) as u64,
        skipped_bytes: (2.8 * 1048576.0) as u64,
        issued_bytes: (13.125 * 1048576.0) as u64,
        processed_bytes: (4.12 * 1048576.0) as u64,
        pass_start_secs: start,
        pass_examined_bytes: 0,
        pass_issued_bytes: (13.125 * 1048576.0) as u64,
        ..pool.scan.unwrap()
    });
    let now = StatusRequest {
        now_secs: start + 1,
        ..request()
    };
    let got = status(&pool, &now);
    let real = case_named(ZPOOL_STATUS, "status-scrubbing").stdout;
    let line = |text: &str, word: &str| text.lines().find(|l| l.contains(word)).unwrap().to_owned();
    for word in ["scan: ", "scanned", "(repairing)"] {
        assert_eq!(line(&got, word), line(&real, word));
    }
    assert_eq!(
        line(&got, "% done"),
        "\t4.12M repaired, 27.69% done, 00:00:02 to go"
    );
    pool.scan.as_mut().unwrap().paused_secs = Some(start + 60);
    let got = status(&pool, &now);
    assert!(
        got.contains("scrub paused since Sat Nov 21 08:12:41 2026\n\tscrub started on"),
        "{got}"
    );
    assert!(got.contains("27.69% done\n"), "{got}");
}

#[test]
fn sequential_resilvers_tell_how_far_they_are() {
    let mut pool = pools("status-scrubbed-j").remove(0);
    let scrub_end = pool.scan.unwrap().end_secs;
    let start = scrub_end + 60;
    let going_on = RebuildStatus {
        vdev: 0,
        state: ScanState::Scanning,
        start_secs: start,
        end_secs: 0,
        took_ms: 3000,
        scanned_bytes: 30 << 20,
        issued_bytes: 30 << 20,
        rebuilt_bytes: 28 << 20,
        total_bytes: 120 << 20,
        errors: 0,
        pass_ms: 999,
        pass_scanned_bytes: 30 << 20,
        pass_issued_bytes: 30 << 20,
        pass_skipped_bytes: 0,
    };
    pool.rebuilds = vec![going_on];
    pool.root.children[0].children[1].rebuilt_bytes = 1;
    assert_eq!(diagnose(&pool, false), Reason::Resilvering);
    let got = status(&pool, &request());
    let when = |secs| date_time(secs, Zone::UTC);
    let since = when(start);
    let expected = format!(
        "  scan: resilver (mirror-0) in progress since {since}\n\t30M / 120M scanned at 30.0M/s, 30M / 120M issued at \
         30.0M/s\n\t28M resilvered, 25.00% done, 00:00:03 to go\n"
    );
    assert!(got.contains(&expected), "{got}");
    assert!(got.contains("  scan: scrub repaired"), "{got}");
    assert!(got.contains("  (resilvering)\n"), "{got}");
    let said = status_json(&[pool.clone()], &request(), JsonStyle::default());
    let said: Value = serde_json::from_str(&said).unwrap();
    let name = pool.name.clone();
    let stats = &said["pools"][name]["scan_stats"]["rebuild_stats"]["mirror-0"];
    let expected = [
        ("vdev_type", "mirror"),
        ("state", "ACTIVE"),
        ("scan_time", "3s"),
        ("scanned", "30M"),
        ("rebuilt", "28M"),
        ("to_scan", "120M"),
        ("errors", "0"),
        ("pass_time", "999ms"),
        ("pass_skipped", "0B"),
    ];
    for (key, value) in expected {
        assert_eq!(stats[key], value, "{key}: {stats}");
    }
    pool.rebuilds[0].state = ScanState::Finished;
    pool.rebuilds[0].end_secs = start + 3;
    pool.root.children[0].children[1].rebuilt_bytes = 0;
    assert_eq!(diagnose(&pool, false), Reason::RebuildScrub);
    let end = when(start + 3);
    let expected =
        format!("  scan: resilvered (mirror-0) 28M in 00:00:03 with 0 errors on {end}\n");
    assert!(status(&pool, &request()).contains(&expected));
    // A scrub that goes on, or a later one, is what was asked for.
    pool.scan.as_mut().unwrap().state = ScanState::Scanning;
    assert_ne!(diagnose(&pool, false), Reason::RebuildScrub);
    pool.scan.as_mut().unwrap().state = ScanState::Finished;
    pool.scan.as_mut().unwrap().end_secs = start + 4;
    assert_ne!(diagnose(&pool, false), Reason::RebuildScrub);
    // Of two kinds of resilvers the last one is shown.
    pool.scan.as_mut().unwrap().function = ScanFunction::Resilver;
    assert!(!status(&pool, &request()).contains("(mirror-0)"));
    pool.scan.as_mut().unwrap().end_secs = start + 2;
    assert!(status(&pool, &request()).contains(&expected));
    pool.rebuilds[0].state = ScanState::Canceled;
    let got = status(&pool, &request());
    let expected = format!("  scan: resilver (mirror-0) canceled on {end}\n");
    assert!(got.contains(&expected), "{got}");
}

#[test]
fn removal_and_checkpoint() {
    let mut pool = pools("status-removed-j").remove(0);
    let removed = VdevStatus {
        kind: VdevKind::Indirect,
        id: 1,
        ..VdevStatus::default()
    };
    pool.root.children.push(removed);
    let end = DAY + 8 * 3600 + 16 * 60 + 7;
    pool.removal = Some(RemovalStatus {
        state: ScanState::Finished,
        vdev: 1,
        start_secs: end,
        end_secs: end,
        total_bytes: 0,
        copied_bytes: parse_number("15.1M").unwrap(),
        mapping_bytes: 48,
    });
    check_status(&[pool.clone()], &request(), "status-removed");
    pool.checkpoint = Some(CheckpointStatus {
        is_discarding: false,
        start_secs: end + 4,
        bytes: 51 << 10,
    });
    check_status(&[pool], &request(), "status-checkpoint");
}

#[test]
fn trims_and_initializations() {
    let mut pool = pools("status-removed-j").remove(0);
    let since = DAY + 8 * 3600 + 16 * 60 + 13;
    let activity = |state, done_bytes| Activity {
        state,
        done_bytes,
        estimate_bytes: 100,
        since_secs: since,
        errors: 0,
    };
    let disks = &mut pool.root.children[0].children;
    disks[0].trim = Some(activity(ActivityState::Active, 12));
    disks[0].initialize = Some(activity(ActivityState::Active, 3));
    disks[1].trim = Some(activity(ActivityState::Active, 12));
    let line = |name: &str, disk: &str| {
        let text = case_named(ZPOOL_STATUS, name).stdout;
        let found = text.lines().find(|l| l.contains(disk)).unwrap().to_owned();
        found.split_once("  (").unwrap().1.to_owned()
    };
    let ours = |request: &StatusRequest, disk: &str| {
        let text = status(&pool, request);
        let found = text.lines().find(|l| l.contains(disk)).unwrap().to_owned();
        found.split_once("  (").unwrap().1.to_owned()
    };
    let trim = StatusRequest {
        has_trim: true,
        ..request()
    };
    assert_eq!(ours(&trim, "vdb1"), line("status-trim", "vdb1"));
    let initialize = StatusRequest {
        has_initialize: true,
        ..request()
    };
    for disk in ["vda1", "vdb1"] {
        assert_eq!(ours(&initialize, disk), line("status-init", disk));
    }
}

#[test]
fn status_as_json() {
    let check = |source: &str, want: &str, request: &StatusRequest, style: JsonStyle| {
        let got = status_json(&pools(source), request, style);
        assert_eq!(got, case_named(ZPOOL_STATUS, want).stdout, "{want}");
    };
    let numbers = JsonStyle {
        has_numbers: true,
        ..JsonStyle::default()
    };
    check("status-jint", "status-jint", &request(), numbers);
    let exact = StatusRequest {
        numbers: NumberStyle::Exact,
        ..request()
    };
    check("status-jint", "status-jp", &exact, JsonStyle::default());
    // Nice numbers in the JSON have lost digits; in this case that makes no difference.
    check(
        "status-two-j",
        "status-two-j",
        &request(),
        JsonStyle::default(),
    );
}

/// `zpool list -p`'s line of the pool that `status-jint` shows.
fn listed() -> Item {
    let line = case_named(ZPOOL_LIST, "list-Hp").stdout;
    let names = default_columns(TableKind::Pool);
    let prop = |(name, cell): (&crate::prop::PropName, &str)| {
        let value = match cell.replace('.', "").parse() {
            Ok(number) => PropValue::Number(number),
            Err(_) if cell == "-" && name.as_str() != "altroot" => PropValue::Number(0),
            Err(_) if cell == "-" => PropValue::Text(String::new()),
            Err(_) => PropValue::Text(cell.to_owned()),
        };
        let source = if name.as_str() == "altroot" {
            Source::Default
        } else {
            Source::None
        };
        Prop::new(name.as_str(), value, source)
    };
    let cells = line.trim_end().split('\t');
    let mut props: Vec<Prop> = names.iter().zip(cells).map(prop).collect();
    props.remove(0);
    Item {
        name: "tank".to_owned(),
        types: None,
        props,
    }
}

#[test]
fn list_with_vdevs() {
    let mut pool = pools("status-jint").remove(0);
    let fragmentation = [1, 1, 5, 0];
    for (top, percent) in pool.root.children.iter_mut().zip(fragmentation) {
        top.fragmentation = Some(percent);
    }
    pool.cache[0].fragmentation = Some(0);
    // The JSON of spares has no sizes.
    pool.spares[0].physical_bytes = pool.root.children[0].children[0].physical_bytes;
    // It grew between the two commands.
    pool.cache[0].alloc_bytes = parse_number("17.27M").unwrap();
    let style = Style::new(TableKind::Pool);
    let names = default_columns(TableKind::Pool);
    let check = |style: &Style, vdev_names, want: &str| {
        let got = list_verbose(style, &names, &[(listed(), &pool)], vdev_names);
        assert_eq!(got, case_named(ZPOOL_LIST, want).stdout, "{want}");
    };
    let plain = NameStyle::default();
    check(&style, plain, "list-v");
    check(
        &style,
        NameStyle {
            is_full_path: true,
            ..plain
        },
        "list-vP",
    );
    check(
        &style,
        NameStyle {
            is_guid: true,
            ..plain
        },
        "list-vg",
    );
    check(
        &Style {
            is_scripted: true,
            ..style
        },
        plain,
        "list-vH",
    );
}

#[test]
fn list_and_get_as_json() {
    let mut pool = pools("status-jint").remove(0);
    pool.txg = 4;
    let style = Style::new(TableKind::Pool);
    let all = GetRequest::new(Some(default_columns(TableKind::Pool)));
    let pools = [(listed(), &pool)];
    let json = |command: &str, style: JsonStyle, request: &GetRequest| {
        pools_json(
            command,
            &Style::new(TableKind::Pool),
            style,
            request,
            &pools,
            None,
        )
    };
    let plain = JsonStyle::default();
    let real = |name: &str| case_named(ZPOOL_LIST, name).stdout;
    assert_eq!(json("zpool list", plain, &all), real("list-j"));
    let numbers = JsonStyle {
        has_numbers: true,
        ..plain
    };
    assert_eq!(json("zpool list", numbers, &all), real("list-jint"));
    let guids = JsonStyle {
        has_guid_keys: true,
        ..plain
    };
    assert_eq!(json("zpool list", guids, &all), real("list-jguid"));
    let some = GetRequest::new(parse_list(TableKind::Pool, "size,capacity").unwrap());
    assert_eq!(
        json("zpool get", plain, &some),
        case_named(ZPOOL_GET, "get-j").stdout
    );
    assert_eq!(style.numbers, NumberStyle::Nice);
}

#[test]
fn candidates_for_import() {
    let mut pool = pools("status-cksum-j").remove(0);
    pool.guid = 6_338_595_030_213_500_992;
    pool.scan = None;
    let mirror = &mut pool.root.children[0];
    (pool.root.state, mirror.state) = (VdevState::Degraded, VdevState::Degraded);
    let gone = &mut mirror.children[1];
    (gone.state, gone.aux) = (VdevState::CantOpen, VdevAux::BadLabel);
    let candidate = ImportCandidate {
        status: &pool,
        comment: None,
        is_destroyed: false,
        is_exported: true,
    };
    let got = import_listing(&candidate, NameStyle::default());
    let real = case_named(ZPOOL_IMPORT, "import-list-missing").stdout;
    assert_eq!(got, real);
    let commented = ImportCandidate {
        comment: Some("hello"),
        is_destroyed: true,
        ..candidate
    };
    let got = import_listing(&commented, NameStyle::default());
    assert!(got.starts_with("   pool: t\n     id: 6338"), "{got}");
    assert!(got.contains("\n  state: DEGRADED (DESTROYED)\n"), "{got}");
    assert!(got.contains("\ncomment: hello\n"), "{got}");
    assert!(got.contains("\n config:\n\n\tt  "), "{got}");
}

#[test]
fn a_candidate_whose_contents_are_ruined_is_faulted() {
    let mut pool = pools("status-cksum-j").remove(0);
    (pool.root.state, pool.root.aux) = (VdevState::CantOpen, VdevAux::CorruptData);
    let candidate = |is_exported| ImportCandidate {
        status: &pool,
        comment: None,
        is_destroyed: false,
        is_exported,
    };
    let listing = |is_exported| import_listing(&candidate(is_exported), NameStyle::default());
    let start = "state: FAULTED\nstatus: The pool metadata is corrupted.\n\
                 action: The pool cannot be imported due to damaged devices or data.\n";
    let hint = "\tThe pool may be active on another system, but can be imported using\n\
                \tthe '-f' flag.\n";
    let see = "   see: https://openzfs.github.io/openzfs-docs/msg/ZFS-8000-72\nconfig:\n";
    let (exported, active) = (listing(true), listing(false));
    assert!(exported.contains(&format!("{start}{see}")), "{exported}");
    assert!(active.contains(&format!("{start}{hint}{see}")), "{active}");
}

#[test]
fn partitions_of_whole_disks_are_not_named() {
    let name = |path: &str| {
        let vdev = VdevStatus {
            kind: VdevKind::Disk { is_whole: true },
            path: Some(path.to_owned()),
            ..VdevStatus::default()
        };
        vdev.name(NameStyle::default())
    };
    let cases = [
        ("/dev/sda1", "sda"),
        ("/dev/nvme0n1p1", "nvme0n1"),
        ("/dev/disk/by-id/ata-WDC_1-part1", "ata-WDC_1"),
        ("/dev/vdaa12", "vdaa"),
        ("/dev/loop3", "loop3"),
        ("/dev/mapper/luks", "luks"),
    ];
    for (path, want) in cases {
        assert_eq!(name(path), want);
    }
}

#[test]
fn times_of_the_fixtures() {
    assert_eq!(date_time(DAY, Zone::UTC), "Sat Nov 21 00:00:00 2026");
}

#[test]
fn an_error_scrub_is_told_of_as_openzfs_does() {
    let mut pool = pools("status-scrubbed-j").remove(0);
    let start = pool.scan.as_ref().unwrap().start_secs + 60;
    let begun = ErrorScrubStatus {
        state: ScanState::Scanning,
        start_secs: start,
        end_secs: 0,
        paused_secs: None,
        examined: 1,
        left: 2,
    };
    let at = |secs| crate::number::date_time(secs, request().zone);
    let mut shown = |scrub: ErrorScrubStatus| {
        pool.error_scrub = Some(scrub);
        let text = status(&pool, &request());
        let (_, text) = text.split_once("\n scrub: ").unwrap();
        text.split_once("config:").unwrap().0.to_owned()
    };
    let progress = "\t33.33% done, issued I/O for 1 error blocks\n";
    assert_eq!(
        shown(begun),
        format!("error scrub in progress since {}\n{progress}", at(start))
    );
    let paused = ErrorScrubStatus {
        paused_secs: Some(start + 5),
        ..begun
    };
    assert_eq!(
        shown(paused),
        format!(
            "error scrub paused since {}\n\terror scrub started on {}\n{progress}",
            at(start + 5),
            at(start)
        )
    );
    let took = 2 * 86400 + 3 * 3600 + 4 * 60 + 5;
    let ended = |state| ErrorScrubStatus {
        state,
        end_secs: start + took,
        examined: 3,
        left: 0,
        ..begun
    };
    assert_eq!(
        shown(ended(ScanState::Canceled)),
        format!("error scrub canceled on {}\n", at(start + took))
    );
    assert_eq!(
        shown(ended(ScanState::Finished)),
        format!(
            "scrubbed 3 error blocks in 2 days 03:04:05 on {}\n",
            at(start + took)
        )
    );
    // A scrub that began later hides it.
    pool.error_scrub.as_mut().unwrap().start_secs = 1;
    assert!(status(&pool, &request()).contains("  scan: scrub repaired"));
    assert!(!status(&pool, &request()).contains("\n scrub: "));
}
