//! `zpool status -j`, `zpool list -j` and `zpool get -j`.

use serde_json::{Map, Value, json};

use super::list::vdev_cell;
use super::{
    Activity, ActivityState, AllocClass, CLASSES, ErrorScrubStatus, NameStyle, PoolStatus,
    ScanFunction, ScanState, StatusRequest, VdevAux, VdevKind, VdevStatus, diagnose, heading,
};
use crate::dedup::{DedupRow, DedupStatus};
use crate::listing::{
    GetRequest, Item, JsonStyle, Style, json_document, json_numbers, json_properties,
};
use crate::number::{NumberStyle, Zone, date_time, nice_bytes, nice_number, nice_time};

/// The role of a vdev: the `class` of its JSON object.
#[derive(Clone, Copy)]
enum Role {
    Class(AllocClass),
    Cache,
    Spare,
}

impl Role {
    fn name(self) -> &'static str {
        match self {
            Role::Class(class) => class.word().unwrap_or("normal"),
            Role::Cache => "l2cache",
            Role::Spare => "spare",
        }
    }
}

struct Writer<'a> {
    json: JsonStyle,
    numbers: NumberStyle,
    request: &'a StatusRequest,
    pool_name: &'a str,
}

/// `zpool status -j`.
#[must_use]
pub fn status_json(pools: &[PoolStatus], request: &StatusRequest, json: JsonStyle) -> String {
    let numbers = if json.has_numbers {
        NumberStyle::Exact
    } else {
        request.numbers
    };
    let mut all = Map::new();
    for pool in pools {
        let writer = Writer {
            json,
            numbers,
            request,
            pool_name: &pool.name,
        };
        all.insert(pool_key(pool, json), Value::Object(writer.pool(pool)));
    }
    let mut body = Map::new();
    body.insert("pools".to_owned(), Value::Object(all));
    json_document("zpool status", body)
}

/// `zpool list -j` and `zpool get -j`: `command` is which of them. With `vdevs`, the style of their
/// names, the vdevs of each pool are listed (`zpool list -v`).
#[must_use]
pub fn pools_json(
    command: &str,
    style: &Style,
    json: JsonStyle,
    request: &GetRequest,
    pools: &[(Item, &PoolStatus)],
    vdevs: Option<NameStyle>,
) -> String {
    let style = json_numbers(style, json);
    let mut all = Map::new();
    for (item, pool) in pools {
        let mut entry = pool_head(pool, json, true);
        let properties = json_properties(&style, json, request, item);
        entry.insert("properties".to_owned(), Value::Object(properties));
        if let Some(names) = vdevs {
            let vdevs = listed_vdevs(pool, &style, json, names);
            entry.insert("vdevs".to_owned(), Value::Object(vdevs));
        }
        all.insert(pool_key(pool, json), Value::Object(entry));
    }
    let mut body = Map::new();
    body.insert("pools".to_owned(), Value::Object(all));
    json_document(command, body)
}

/// `zpool get -j` of vdevs.
#[must_use]
#[doc(alias = "get_callback_vdev")]
pub fn vdevs_json(
    style: &Style,
    json: JsonStyle,
    request: &GetRequest,
    pool: &PoolStatus,
    vdevs: &[(Item, &VdevStatus)],
) -> String {
    let style = json_numbers(style, json);
    let mut all = Map::new();
    for (item, vdev) in vdevs {
        let mut entry = Map::new();
        entry.insert("name".to_owned(), json!(item.name));
        entry.insert("type".to_owned(), json!("VDEV"));
        entry.extend(vdev_head(vdev, &item.name, Role::Class(vdev.class), json));
        let properties = json_properties(&style, json, request, item);
        entry.insert("properties".to_owned(), Value::Object(properties));
        all.insert(item.name.clone(), Value::Object(entry));
    }
    let mut body = Map::new();
    let head = pool_head(pool, json, false);
    body.insert("pool".to_owned(), Value::Object(head));
    body.insert("vdevs".to_owned(), Value::Object(all));
    json_document("zpool get", body)
}

fn pool_key(pool: &PoolStatus, json: JsonStyle) -> String {
    if json.has_guid_keys {
        pool.guid.to_string()
    } else {
        pool.name.clone()
    }
}

#[doc(alias = "fill_pool_info")]
fn pool_head(pool: &PoolStatus, json: JsonStyle, has_type: bool) -> Map<String, Value> {
    let mut out = Map::new();
    out.insert("name".to_owned(), json!(pool.name));
    if has_type {
        out.insert("type".to_owned(), json!("POOL"));
    }
    out.insert("state".to_owned(), json!(pool.state_name()));
    let numbers = [
        ("pool_guid", pool.guid),
        ("txg", pool.txg),
        ("spa_version", 5000),
    ];
    for (name, number) in numbers.into_iter().chain([("zpl_version", 5)]) {
        out.insert(name.to_owned(), json.number(number));
    }
    out
}

#[doc(alias = "fill_vdev_info")]
fn vdev_head(vdev: &VdevStatus, name: &str, place: Role, json: JsonStyle) -> Map<String, Value> {
    let state = if matches!(place, Role::Spare) {
        vdev.spare_state_name()
    } else {
        vdev.state_name()
    };
    let mut out = Map::new();
    out.insert("name".to_owned(), json!(name));
    out.insert("vdev_type".to_owned(), json!(vdev.kind.type_name()));
    out.insert("guid".to_owned(), json.number(vdev.guid));
    if let Some(path) = &vdev.path {
        out.insert("path".to_owned(), json!(path));
    }
    let class = if vdev.is_spare {
        Role::Spare.name()
    } else {
        place.name()
    };
    out.insert("class".to_owned(), json!(class));
    out.insert("state".to_owned(), json!(state));
    out
}

/// The columns that `zpool list -v` fills for vdevs.
const LISTED: [&str; 9] = [
    "size",
    "allocated",
    "free",
    "checkpoint",
    "expandsize",
    "fragmentation",
    "capacity",
    "dedupratio",
    "health",
];

#[doc(alias = "collect_list_stats")]
fn listed_vdevs(
    pool: &PoolStatus,
    style: &Style,
    json: JsonStyle,
    names: NameStyle,
) -> Map<String, Value> {
    let mut out = Map::new();
    let list = |out: &mut Map<String, Value>, vdev: &VdevStatus, place| {
        let (name, entry) = listed_vdev(vdev, place, style, json, names);
        out.insert(name, entry);
    };
    for top in pool.tops(AllocClass::Normal) {
        list(&mut out, top, Role::Class(AllocClass::Normal));
    }
    let classes = CLASSES.map(|class| (heading(class), Role::Class(class)));
    for (heading, place) in classes {
        let Role::Class(class) = place else { continue };
        let mut group = Map::new();
        pool.tops(class)
            .for_each(|top| list(&mut group, top, place));
        if !group.is_empty() {
            out.insert(heading.to_owned(), Value::Object(group));
        }
    }
    let lone = [
        ("l2cache", &pool.cache, Role::Cache),
        ("spares", &pool.spares, Role::Spare),
    ];
    for (heading, vdevs, place) in lone {
        let mut group = Map::new();
        vdevs.iter().for_each(|vdev| list(&mut group, vdev, place));
        if !group.is_empty() {
            out.insert(heading.to_owned(), Value::Object(group));
        }
    }
    out
}

fn listed_vdev(
    vdev: &VdevStatus,
    place: Role,
    style: &Style,
    json: JsonStyle,
    names: NameStyle,
) -> (String, Value) {
    let name = vdev.name(names);
    let mut entry = match vdev.kind {
        VdevKind::Indirect => Map::from_iter([("name".to_owned(), json!(name))]),
        _ => vdev_head(vdev, &name, place, json),
    };
    let is_spare = matches!(place, Role::Spare);
    let mut properties = Map::new();
    for column in LISTED {
        let cell = vdev_cell(style, vdev, column, is_spare).unwrap_or_else(|| "-".to_owned());
        let source = json!({ "type": "NONE", "data": "-" });
        let value = json!({ "value": json.cell(&cell), "source": source });
        properties.insert(column.to_owned(), value);
    }
    entry.insert("properties".to_owned(), Value::Object(properties));
    let children: Map<String, Value> = vdev
        .children
        .iter()
        .map(|child| listed_vdev(child, place, style, json, names))
        .collect();
    if !children.is_empty() {
        entry.insert("vdevs".to_owned(), Value::Object(children));
    }
    (name, Value::Object(entry))
}

/// The time as date(1) prints it: `ctime` with the time zone before the year; an offset if not UTC.
fn timestamp(secs: u64, zone: Zone) -> String {
    let text = date_time(secs, zone);
    let (start, year) = text.split_at(text.len() - 4);
    let offset = (zone.0)(secs);
    if offset == 0 {
        return format!("{start}UTC {year}");
    }
    let sign = if offset < 0 { '-' } else { '+' };
    let minutes = offset.unsigned_abs() / 60;
    format!("{start}{sign}{:02}{:02} {year}", minutes / 60, minutes % 60)
}

impl Writer<'_> {
    fn count(&self, number: u64) -> Value {
        match self.numbers {
            NumberStyle::Exact => self.json.number(number),
            NumberStyle::Nice => json!(nice_number(number)),
        }
    }

    fn bytes(&self, number: u64) -> Value {
        match self.numbers {
            NumberStyle::Exact => self.json.number(number),
            NumberStyle::Nice => json!(nice_bytes(number)),
        }
    }

    fn time(&self, secs: u64) -> Value {
        match self.numbers {
            NumberStyle::Exact => self.json.number(secs),
            NumberStyle::Nice => json!(timestamp(secs, self.request.zone)),
        }
    }

    fn pool(&self, pool: &PoolStatus) -> Map<String, Value> {
        let mut out = pool_head(pool, self.json, false);
        let reason = diagnose(pool, false);
        if let Some((status, action)) = reason.advice(pool) {
            out.insert("status".to_owned(), json!(status));
            out.insert("action".to_owned(), json!(action));
        }
        if let Some(id) = reason.message_id() {
            let link = format!("https://openzfs.github.io/openzfs-docs/msg/{id}");
            out.insert("msgid".to_owned(), json!(id));
            out.insert("moreinfo".to_owned(), json!(link));
        }
        let mut scan = match &pool.scan {
            Some(scan) => self.scan(scan),
            None => json!({}),
        };
        let began = pool.scan.as_ref().map_or(0, |scan| scan.start_secs);
        let is_last = |scrub: &&ErrorScrubStatus| scrub.start_secs > began;
        if let Some(scrub) = pool.error_scrub.as_ref().filter(is_last) {
            self.push_error_scrub(&mut scan, scrub);
        }
        if !pool.rebuilds.is_empty() {
            scan["rebuild_stats"] = self.rebuilds(pool);
        }
        if scan != json!({}) {
            out.insert("scan_stats".to_owned(), scan);
        }
        if pool.removal.is_some() {
            out.insert("removal_stats".to_owned(), self.removal(pool));
        }
        if let Some(expand) = &pool.expand {
            out.insert("raidz_expand_stats".to_owned(), self.expand(pool, expand));
        }
        self.push_vdevs(&mut out, pool);
        if let Some(dedup) = pool.dedup.as_ref().filter(|_| self.request.has_dedup) {
            out.insert("dedup_stats".to_owned(), self.dedup(dedup));
        }
        if let Some(count) = pool.error_count {
            out.insert("error_count".to_owned(), self.count(count));
            if self.request.is_verbose && count > 0 {
                out.insert("errlist".to_owned(), json!(pool.errors));
            }
        }
        out
    }

    #[doc(alias = "dedup_stats_nvlist")]
    fn dedup(&self, dedup: &DedupStatus) -> Value {
        let mut out = Map::new();
        out.insert("obj_count".to_owned(), self.count(dedup.entries));
        if dedup.entries == 0 {
            out.insert("ddt_object_stats".to_owned(), json!({}));
            return Value::Object(out);
        }
        out.insert("dspace".to_owned(), self.count(dedup.disk_bytes));
        out.insert("mspace".to_owned(), self.count(dedup.core_bytes));
        let rows = dedup.rows.iter();
        let rows = rows.map(|(refcnt, row)| (refcnt.ilog2().to_string(), self.dedup_row(row)));
        let rows: Map<String, Value> = rows.collect();
        let stats = json!({ "total": self.dedup_row(&dedup.total), "histogram": rows });
        out.insert("ddt_stats".to_owned(), stats);
        Value::Object(out)
    }

    #[doc(alias = "ddt_stats_nvlist")]
    fn dedup_row(&self, row: &DedupRow) -> Value {
        let (stored, referenced) = (row.stored, row.referenced);
        json!({
            "blocks": self.count(stored[0]),
            "logical_size": self.bytes(stored[1]),
            "physical_size": self.bytes(stored[2]),
            "deflated_size": self.bytes(stored[3]),
            "ref_blocks": self.count(referenced[0]),
            "ref_lsize": self.bytes(referenced[1]),
            "ref_psize": self.bytes(referenced[2]),
            "ref_dsize": self.bytes(referenced[3]),
        })
    }

    fn push_vdevs(&self, out: &mut Map<String, Value>, pool: &PoolStatus) {
        let normal = Role::Class(AllocClass::Normal);
        let mut all = Map::new();
        self.insert(&mut all, (&pool.root, &pool.name), normal, None);
        out.insert("vdevs".to_owned(), Value::Object(all));
        for class in CLASSES {
            let vdevs = self.vdevs(pool.tops(class), Role::Class(class));
            if !vdevs.is_empty() {
                out.insert(heading(class).to_owned(), Value::Object(vdevs));
            }
        }
        let lone = [
            ("l2cache", &pool.cache, Role::Cache),
            ("spares", &pool.spares, Role::Spare),
        ];
        for (name, vdevs, place) in lone {
            let vdevs = self.vdevs(vdevs.iter(), place);
            if !vdevs.is_empty() {
                out.insert(name.to_owned(), Value::Object(vdevs));
            }
        }
    }

    fn vdevs<'v>(
        &self,
        vdevs: impl Iterator<Item = &'v VdevStatus>,
        place: Role,
    ) -> Map<String, Value> {
        let mut out = Map::new();
        for vdev in vdevs {
            self.insert(
                &mut out,
                (vdev, &vdev.name(self.request.names)),
                place,
                None,
            );
        }
        out
    }

    /// Adds a vdev with all below it; with `--json-flat-vdevs` those are added to `out` as well.
    fn insert(
        &self,
        out: &mut Map<String, Value>,
        (vdev, name): (&VdevStatus, &str),
        place: Role,
        parent: Option<&str>,
    ) {
        let is_healthy = !vdev.is_unhealthy(self.request.has_slow);
        let is_hidden = self.request.only_unhealthy && parent.is_some() && is_healthy;
        if vdev.kind == VdevKind::Indirect || is_hidden {
            return;
        }
        let parent = parent.filter(|_| self.request.is_flat);
        let mut entry = self.vdev(vdev, name, place, parent);
        let mut below = Map::new();
        let is_root = vdev.kind == VdevKind::Root;
        let is_elsewhere = |child: &&VdevStatus| is_root && child.class != AllocClass::Normal;
        let is_shown = |child: &&VdevStatus| !is_elsewhere(child) && child.kind != VdevKind::Hole;
        for child in vdev.children.iter().filter(is_shown) {
            let child_name = child.name(self.request.names);
            if self.request.is_flat {
                self.insert(out, (child, &child_name), place, Some(name));
            }
            self.insert(&mut below, (child, &child_name), place, Some(name));
        }
        if !below.is_empty() {
            entry.insert("vdevs".to_owned(), Value::Object(below));
        }
        out.insert(name.to_owned(), Value::Object(entry));
    }

    #[doc(alias = "vdev_stats_nvlist")]
    fn vdev(
        &self,
        vdev: &VdevStatus,
        name: &str,
        place: Role,
        parent: Option<&str>,
    ) -> Map<String, Value> {
        let is_spare = matches!(place, Role::Spare);
        let mut out = vdev_head(vdev, name, place, self.json);
        if let Some(parent) = parent {
            out.insert("parent".to_owned(), json!(parent));
        }
        if !is_spare {
            self.push_numbers(&mut out, vdev);
        }
        if vdev.is_not_present {
            out.insert("not_present".to_owned(), self.json.number(1));
            out.insert("was".to_owned(), json!(vdev.path));
        } else if vdev.aux != VdevAux::None {
            if let Some(pool) = &vdev.used_by {
                out.insert("used_by".to_owned(), json!(pool));
            }
            out.insert("aux".to_owned(), json!(aux_name(vdev.aux)));
        }
        if let Some(scripts) = &self.request.scripts {
            scripts.push_json(&mut out, self.pool_name, vdev);
        }
        if vdev.is_leaf() && vdev.kind != VdevKind::Root {
            self.push_activities(&mut out, vdev);
        }
        out
    }

    fn push_numbers(&self, out: &mut Map<String, Value>, vdev: &VdevStatus) {
        let sizes = [
            ("alloc_space", vdev.alloc_bytes),
            ("total_space", vdev.space_bytes),
            ("def_space", vdev.deflated_bytes),
            ("rep_dev_size", vdev.replaceable_bytes),
            ("ex_dev_size", vdev.expandable_bytes),
            ("self_healed", vdev.healed_bytes),
            ("phys_space", vdev.physical_bytes),
        ];
        for (name, bytes) in sizes.into_iter().filter(|(_, bytes)| *bytes > 0) {
            out.insert(name.to_owned(), self.bytes(bytes));
        }
        let errors = [
            ("read_errors", vdev.read_errors),
            ("write_errors", vdev.write_errors),
            ("checksum_errors", vdev.checksum_errors),
        ];
        for (name, number) in errors {
            out.insert(name.to_owned(), self.count(number));
        }
        let more = [
            ("scan_processed", vdev.scanned_bytes),
            ("checkpoint_space", vdev.checkpoint_bytes),
        ];
        for (name, bytes) in more.into_iter().filter(|(_, bytes)| *bytes > 0) {
            out.insert(name.to_owned(), self.bytes(bytes));
        }
        if vdev.is_leaf() && vdev.kind != VdevKind::Root {
            out.insert("slow_ios".to_owned(), self.count(vdev.slow_ios));
        }
        if self.request.has_direct {
            out.insert(
                "dio_verify_errors".to_owned(),
                self.count(vdev.direct_errors),
            );
        }
    }

    /// How far initialization and trim of a device are.
    fn push_activities(&self, out: &mut Map<String, Value>, vdev: &VdevStatus) {
        if self.request.has_initialize {
            let names = [
                "init_state",
                "initialized",
                "to_initialize",
                "init_time",
                "init_errors",
            ];
            self.push_activity(out, vdev.initialize.as_ref(), names, "UNINITIALIZED");
        }
        if self.request.has_trim {
            let names = [
                "trim_state",
                "trimmed",
                "to_trim",
                "trim_time",
                "trim_errors",
            ];
            if !vdev.is_trim_unsupported {
                self.push_activity(out, vdev.trim.as_ref(), names, "UNTRIMMED");
            }
            let unsupported = u64::from(vdev.is_trim_unsupported);
            out.insert("trim_notsup".to_owned(), self.json.number(unsupported));
        }
    }

    fn push_activity(
        &self,
        out: &mut Map<String, Value>,
        activity: Option<&Activity>,
        names: [&str; 5],
        none: &str,
    ) {
        let Some(activity) = activity else {
            out.insert(names[0].to_owned(), json!(none));
            return;
        };
        let state = match activity.state {
            ActivityState::Active => "ACTIVE",
            ActivityState::Canceled => "CANCELED",
            ActivityState::Suspended => "SUSPENDED",
            ActivityState::Complete => "COMPLETE",
        };
        let values = [
            json!(state),
            self.bytes(activity.done_bytes),
            self.bytes(activity.estimate_bytes),
            self.time(activity.since_secs),
            self.count(activity.errors),
        ];
        for (name, value) in names.into_iter().zip(values) {
            out.insert(name.to_owned(), value);
        }
    }

    fn scan(&self, scan: &super::ScanStatus) -> Value {
        let function = match scan.function {
            ScanFunction::Scrub => "SCRUB",
            ScanFunction::Resilver => "RESILVER",
        };
        let pause = scan.paused_secs.map_or(json!("-"), |secs| self.time(secs));
        json!({
            "function": function,
            "state": state_name(scan.state),
            "start_time": self.time(scan.start_secs),
            "end_time": self.time(scan.end_secs),
            "to_examine": self.bytes(scan.total_bytes),
            "examined": self.bytes(scan.examined_bytes),
            "skipped": self.bytes(scan.skipped_bytes),
            "processed": self.bytes(scan.processed_bytes),
            "errors": self.count(scan.errors),
            "bytes_per_scan": self.bytes(scan.pass_examined_bytes),
            "pass_start": self.json.number(scan.pass_start_secs),
            "scrub_pause": pause,
            "scrub_spent_paused": self.json.number(scan.pass_paused_secs),
            "issued_bytes_per_scan": self.bytes(scan.pass_issued_bytes),
            "issued": self.bytes(scan.issued_bytes),
        })
    }

    fn push_error_scrub(&self, out: &mut Value, scrub: &ErrorScrubStatus) {
        let state = match scrub.state {
            ScanState::Scanning => "ERRORSCRUBBING",
            ended => state_name(ended),
        };
        let pause = scrub.paused_secs.unwrap_or(0);
        out["err_scrub_func"] = json!("ERRORSCRUB");
        out["err_scrub_state"] = json!(state);
        out["err_scrub_start_time"] = json!(self.time(scrub.start_secs));
        out["err_scrub_end_time"] = json!(self.time(scrub.end_secs));
        out["err_scrub_examined"] = json!(self.count(scrub.examined));
        out["err_scrub_to_examine"] = json!(self.count(scrub.left));
        out["err_scrub_pause"] = json!(self.json.number(pause));
    }

    fn rebuilds(&self, pool: &PoolStatus) -> Value {
        let mut out = Map::new();
        for rebuild in &pool.rebuilds {
            let mut tops = pool.root.children.iter();
            let Some(top) = tops.find(|top| top.id == rebuild.vdev) else {
                continue;
            };
            let name = top.name(super::NameStyle::default());
            let state = match rebuild.state {
                ScanState::Scanning => "ACTIVE",
                ScanState::Canceled => "CANCELED",
                ScanState::Finished => "COMPLETE",
            };
            let mut about = vdev_head(top, &name, Role::Class(top.class), self.json);
            let values = [
                ("state", json!(state)),
                ("start_time", self.time(rebuild.start_secs)),
                ("end_time", self.time(rebuild.end_secs)),
                ("scan_time", self.span(rebuild.took_ms)),
                ("scanned", self.bytes(rebuild.scanned_bytes)),
                ("issued", self.bytes(rebuild.issued_bytes)),
                ("rebuilt", self.bytes(rebuild.rebuilt_bytes)),
                ("to_scan", self.bytes(rebuild.total_bytes)),
                ("errors", self.count(rebuild.errors)),
                ("pass_time", self.span(rebuild.pass_ms)),
                ("pass_scanned", self.bytes(rebuild.pass_scanned_bytes)),
                ("pass_issued", self.bytes(rebuild.pass_issued_bytes)),
                ("pass_skipped", self.bytes(rebuild.pass_skipped_bytes)),
            ];
            about.extend(values.map(|(key, value)| (key.to_owned(), value)));
            out.insert(name, Value::Object(about));
        }
        Value::Object(out)
    }

    /// A length of time.
    fn span(&self, ms: u64) -> Value {
        let ns = ms.saturating_mul(1_000_000);
        match self.numbers {
            NumberStyle::Exact => self.json.number(ns),
            NumberStyle::Nice => json!(nice_time(ns)),
        }
    }

    #[doc(alias = "raidz_expand_status_nvlist")]
    fn expand(&self, pool: &PoolStatus, expand: &super::ExpandStatus) -> Value {
        let vdev = pool.root.children.iter().find(|top| top.id == expand.vdev);
        let names = super::NameStyle {
            has_id: false,
            ..self.request.names
        };
        json!({
            "name": vdev.map(|vdev| vdev.name(names)),
            "state": state_name(expand.state),
            "expanding_vdev": self.json.number(expand.vdev),
            "start_time": self.time(expand.start_secs),
            "end_time": self.time(expand.end_secs),
            "to_reflow": self.bytes(expand.total_bytes),
            "reflowed": self.bytes(expand.copied_bytes),
            "waiting_for_resilver": self.json.number(u64::from(expand.waits_for_resilver)),
        })
    }

    fn removal(&self, pool: &PoolStatus) -> Value {
        let removal = pool.removal.as_ref().expect("the caller looked");
        let vdev = pool.root.children.iter().find(|top| top.id == removal.vdev);
        let names = super::NameStyle {
            has_id: false,
            ..self.request.names
        };
        json!({
            "name": vdev.map(|vdev| vdev.name(names)),
            "state": state_name(removal.state),
            "removing_vdev": self.json.number(removal.vdev),
            "start_time": self.time(removal.start_secs),
            "end_time": self.time(removal.end_secs),
            "to_copy": self.bytes(removal.total_bytes),
            "copied": self.bytes(removal.copied_bytes),
            "mapping_memory": self.bytes(removal.mapping_bytes),
        })
    }
}

fn state_name(state: ScanState) -> &'static str {
    match state {
        ScanState::Scanning => "SCANNING",
        ScanState::Finished => "FINISHED",
        ScanState::Canceled => "CANCELED",
    }
}

fn aux_name(aux: VdevAux) -> &'static str {
    match aux {
        VdevAux::None => "NONE",
        VdevAux::OpenFailed => "OPEN_FAILED",
        VdevAux::CorruptData => "CORRUPT_DATA",
        VdevAux::NoReplicas => "NO_REPLICAS",
        VdevAux::BadGuidSum => "BAD_GUID_SUM",
        VdevAux::TooSmall => "TOO_SMALL",
        VdevAux::BadLabel => "BAD_LABEL",
        VdevAux::VersionNewer => "VERSION_NEWER",
        VdevAux::VersionOlder => "VERSION_OLDER",
        VdevAux::UnsupFeat => "UNSUP_FEAT",
        VdevAux::Spared => "SPARED",
        VdevAux::ErrExceeded => "ERR_EXCEEDED",
        VdevAux::IoFailure => "IO_FAILURE",
        VdevAux::BadLog => "BAD_LOG",
        VdevAux::External => "EXTERNAL",
        VdevAux::ExternalPersist => "EXTERNAL_PERSIST",
        VdevAux::BadAshift => "BAD_ASHIFT",
        VdevAux::SplitPool => "SPLIT_POOL",
        VdevAux::AshiftTooBig => "ASHIFT_TOO_BIG",
        VdevAux::Active => "ACTIVE",
        VdevAux::ChildrenOffline => "CHILDREN_OFFLINE",
    }
}
