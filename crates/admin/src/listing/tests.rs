//! Listings compared with those of the real tools: the input is their exact output (`-p`), the
//! expected output their readable one.

use super::*;
use crate::golden::{Case, case};
use crate::prop::{Kind, PropName, parse_list};

const ZFS_GET: &str = include_str!("../../tests/golden/zfs-get.txt");
const ZFS_LIST: &str = include_str!("../../tests/golden/zfs-list.txt");
const ZPOOL_GET: &str = include_str!("../../tests/golden/zpool-get.txt");
const ZPOOL_LIST: &str = include_str!("../../tests/golden/zpool-list.txt");

const EXACT: NumberStyle = NumberStyle::Exact;

/// The value that prints as `text` with `-p`.
fn exact(kind: TableKind, name: &str, text: &str) -> PropValue {
    let number = |text: &str| PropValue::Number(text.replace('.', "").parse().unwrap());
    match (kind.lookup(name).map(|desc| (desc, desc.kind)), text) {
        (_, "auto") => PropValue::Number(u64::MAX),
        (Some((desc, Kind::Number(_))), "none") if desc.name.ends_with("_limit") => {
            PropValue::Number(u64::MAX)
        }
        (Some((desc, Kind::Number(_))), "none") if desc.name.ends_with("_count") => {
            PropValue::Number(u64::MAX)
        }
        (Some((desc, _)), "-") if desc.name == "version" => PropValue::Number(5000),
        (Some((_, Kind::Number(_))), "-") => PropValue::Number(0),
        (Some((desc, Kind::Number(_))), text) if desc.name != "health" => number(text),
        (Some((desc, Kind::Index(..))), text) => {
            let word = match text {
                "yes" => "on",
                "no" => "off",
                other => other,
            };
            PropValue::Number(desc.number(word).unwrap())
        }
        (_, "-") => PropValue::Text(String::new()),
        (_, text) => PropValue::Text(text.to_owned()),
    }
}

fn source(text: &str) -> Source {
    match text {
        "-" => Source::None,
        "default" => Source::Default,
        "local" => Source::Local,
        other => Source::Inherited(other.strip_prefix("inherited from ").unwrap().to_owned()),
    }
}

/// Reads the output of `get -p` (or `-Hp`) back.
fn items(kind: TableKind, case: &Case) -> Vec<Item> {
    let is_scripted = case.command.contains("-Hp");
    let mut items: Vec<Item> = Vec::new();
    let header = case.stdout.lines().next().unwrap();
    let starts = ["PROPERTY", "VALUE", "SOURCE"].map(|h| header.find(h).unwrap_or(0));
    for line in case.stdout.lines().skip(usize::from(!is_scripted)) {
        let cells: Vec<&str> = if is_scripted {
            line.split('\t').collect()
        } else {
            let [property, value, source] = starts;
            let cells = [
                &line[..property],
                &line[property..value],
                &line[value..source],
            ];
            cells
                .into_iter()
                .chain([&line[source..]])
                .map(str::trim)
                .collect()
        };
        let [name, property, value, origin] = cells[..] else {
            panic!("{line:?}");
        };
        if items.last().is_none_or(|item| item.name != name) {
            items.push(Item {
                name: name.to_owned(),
                ..Item::default()
            });
        }
        let value = exact(kind, property, value);
        items
            .last_mut()
            .unwrap()
            .props
            .push(Prop::new(property, value, source(origin)));
    }
    items
}

fn all() -> GetRequest {
    GetRequest::new(None)
}

#[test]
fn zfs_get_all_prints_as_openzfs_does() {
    let dataset = Style::new(TableKind::Dataset);
    let home = items(
        TableKind::Dataset,
        &case(ZFS_GET, "zfs get -p all tank/home"),
    );
    let nice = case(ZFS_GET, "zfs get all tank/home").stdout;
    assert_eq!(get(&dataset, &all(), &home), nice);
    let exact_style = Style {
        numbers: EXACT,
        ..dataset
    };
    let exact = case(ZFS_GET, "zfs get -p all tank/home").stdout;
    assert_eq!(get(&exact_style, &all(), &home), exact);

    let volume = items(
        TableKind::Dataset,
        &case(ZFS_GET, "zfs get -Hp all tank/vol"),
    );
    let nice = case(ZFS_GET, "zfs get all tank/vol").stdout;
    assert_eq!(get(&dataset, &all(), &volume), nice);
    let scripted = Style {
        is_scripted: true,
        ..exact_style
    };
    let exact = case(ZFS_GET, "zfs get -Hp all tank/vol").stdout;
    assert_eq!(get(&scripted, &all(), &volume), exact);
}

#[test]
fn zfs_get_some_prints_as_openzfs_does() {
    let dataset = Style::new(TableKind::Dataset);
    let mut home = items(
        TableKind::Dataset,
        &case(ZFS_GET, "zfs get -p all tank/home"),
    );
    let only = |item: &mut Item, names: &[&str]| {
        item.props.retain(|p| names.contains(&p.name.as_str()));
    };
    only(&mut home[0], &["compression", "quota", "com.example:note"]);
    let mut tank = home[0].clone();
    tank.name = "tank".to_owned();
    for prop in &mut tank.props {
        (prop.value, prop.source) = match prop.name.as_str() {
            "compression" => (PropValue::Number(15), Source::Local),
            "quota" => (PropValue::Number(0), Source::Default),
            _ => (PropValue::Text("there".to_owned()), Source::Local),
        };
    }
    let both = [tank, home.remove(0)];
    let names = |text| parse_list(TableKind::Dataset, text).unwrap();

    let command = "zfs get -o name,property,value,received,source compression tank tank/home";
    let mut request = GetRequest::new(names("compression"));
    request.fields = parse_get_fields("all").unwrap();
    assert_eq!(
        get(&dataset, &request, &both),
        case(ZFS_GET, command).stdout
    );

    let command = "zfs get -o property,value -H compression tank";
    request.fields = parse_get_fields("property,value").unwrap();
    let scripted = Style {
        is_scripted: true,
        ..dataset
    };
    assert_eq!(
        get(&scripted, &request, &both[..1]),
        case(ZFS_GET, command).stdout
    );

    let command = "zfs get -r com.example:nosuch tank";
    let first_rows: String = case(ZFS_GET, command)
        .stdout
        .lines()
        .take(2)
        .map(|l| format!("{l}\n"))
        .collect();
    let mut request = GetRequest::new(names("com.example:nosuch"));
    let far = Item {
        name: "tank/home/user@one".to_owned(),
        ..Item::default()
    };
    let got = get(&dataset, &request, &[both[0].clone(), far]);
    assert!(got.starts_with(&first_rows), "{got}");
    request.sources = vec!["local".to_owned()];
    assert_eq!(get(&dataset, &request, &both), "");

    let mut request = GetRequest::new(names("compression,quota,com.example:note"));
    let command = "zfs get -j compression,quota,com.example:note tank tank/home";
    let with_type = both.clone().map(|mut item| {
        item.props.push(Prop::text("type", "filesystem"));
        item.props.push(Prop::number(
            "createtxg",
            if item.name == "tank" { 1 } else { 9 },
        ));
        item
    });
    let json = |request: &GetRequest| {
        datasets_json(
            "zfs get",
            &dataset,
            JsonStyle::default(),
            request,
            &with_type,
        )
    };
    assert_eq!(json(&request), case(ZFS_GET, command).stdout);
    request.sources = vec!["inherited".to_owned()];
    assert!(json(&request).contains(r#""tank/home","type":"FILESYSTEM""#));
}

/// Reads the output of `zfs list -Hp` back.
fn listed() -> Vec<Item> {
    let names = default_columns(TableKind::Dataset);
    let lines = case(ZFS_LIST, "zfs list -Hp").stdout;
    let item = |line: &str| {
        let cells: Vec<&str> = line.split('\t').collect();
        let prop = |(name, cell): (&PropName, &&str)| {
            let value = exact(TableKind::Dataset, name.as_str(), cell);
            Prop::new(name.as_str(), value, Source::None)
        };
        let mut props: Vec<Prop> = names.iter().zip(&cells).skip(1).map(prop).collect();
        props.retain(|p| p.value != PropValue::Text(String::new()));
        Item {
            name: cells[0].to_owned(),
            types: None,
            props,
        }
    };
    lines.lines().map(item).collect()
}

#[test]
fn zfs_list_prints_as_openzfs_does() {
    let style = Style::new(TableKind::Dataset);
    let names = default_columns(TableKind::Dataset);
    let items = listed();
    let check = |style: &Style, command| {
        assert_eq!(
            list(style, &names, &items),
            case(ZFS_LIST, command).stdout,
            "{command}"
        );
    };
    check(&style, "zfs list");
    check(
        &Style {
            numbers: EXACT,
            ..style
        },
        "zfs list -p",
    );
    check(
        &Style {
            is_scripted: true,
            ..style
        },
        "zfs list -H",
    );
    check(
        &Style {
            numbers: EXACT,
            is_scripted: true,
            ..style
        },
        "zfs list -Hp",
    );
}

#[test]
fn zfs_list_sorts_as_openzfs_does() {
    let style = Style::new(TableKind::Dataset);
    let mut items = listed();
    let key = |name, is_reverse| SortKey {
        name: PropName::Native(name),
        is_reverse,
    };
    let mut check = |keys: &[SortKey], columns: &str, command| {
        sort_datasets(&mut items, keys);
        let names = parse_list(TableKind::Dataset, columns).unwrap().unwrap();
        assert_eq!(
            list(&style, &names, &items),
            case(ZFS_LIST, command).stdout,
            "{command}"
        );
    };
    let default = "name,used,avail,refer,mountpoint";
    check(&[key("used", false)], default, "zfs list -s used");
    check(&[key("name", true)], default, "zfs list -S name");
    let two = [key("available", false), key("used", true)];
    check(
        &two,
        "name,used,avail",
        "zfs list -s avail -S used -o name,used,avail",
    );
    check(&[], default, "zfs list");
}

#[test]
fn snapshots_follow_their_dataset_in_the_order_they_were_made() {
    let item = |name: &str, txg| Item {
        name: name.to_owned(),
        types: None,
        props: vec![Prop::number("createtxg", txg)],
    };
    let mut items = vec![
        item("tank/home/user", 5),
        item("tank/home#mark", 30),
        item("tank/home@a", 29),
        item("tank/home@b", 28),
        item("tank/home", 9),
        item("tank", 1),
    ];
    sort_datasets(&mut items, &[]);
    let names: Vec<&str> = items.iter().map(|i| i.name.as_str()).collect();
    let want = [
        "tank",
        "tank/home",
        "tank/home@b",
        "tank/home@a",
        "tank/home#mark",
        "tank/home/user",
    ];
    assert_eq!(names, want);
}

#[test]
fn zpool_get_and_list_print_as_openzfs_does() {
    let style = Style::new(TableKind::Pool);
    let exact_style = Style {
        numbers: EXACT,
        ..style
    };
    let mut pools = items(TableKind::Pool, &case(ZPOOL_GET, "zpool get -p all tank"));
    let check = |style: &Style, pools: &[Item], command| {
        assert_eq!(
            get(style, &all(), pools),
            case(ZPOOL_GET, command).stdout,
            "{command}"
        );
    };
    check(&exact_style, &pools, "zpool get -p all tank");
    check(
        &Style {
            is_scripted: true,
            ..exact_style
        },
        &pools,
        "zpool get -Hp all tank",
    );
    check(
        &Style {
            is_scripted: true,
            ..style
        },
        &pools,
        "zpool get -H all tank",
    );

    // This output of `list` is from before anything was set.
    let names = default_columns(TableKind::Pool);
    let check = |style: &Style, command| {
        assert_eq!(
            list(style, &names, &pools),
            case(ZPOOL_LIST, command).stdout,
            "{command}"
        );
    };
    check(&style, "zpool list");
    check(&exact_style, "zpool list -p");
    check(
        &Style {
            is_scripted: true,
            ..style
        },
        "zpool list -H",
    );
    let command =
        "zpool list -o name,guid,freeing,leaked,fragmentation,dedupratio,ashift,comment,readonly";
    let some = command.rsplit(' ').next().unwrap();
    let some = parse_list(TableKind::Pool, some).unwrap().unwrap();
    assert_eq!(
        list(&style, &some, &pools),
        case(ZPOOL_LIST, command).stdout
    );

    let request = parse_list(
        TableKind::Pool,
        "size,capacity,health,feature@lz4_compress,ashift",
    );
    let command = "zpool get size,capacity,health,feature@lz4_compress,ashift tank";
    pools.truncate(1);
    let got = get(&style, &GetRequest::new(request.unwrap()), &pools);
    assert_eq!(got, case(ZPOOL_GET, command).stdout);
}

#[test]
fn fields_of_get() {
    assert_eq!(
        parse_get_fields("value,name").unwrap(),
        [GetField::Value, GetField::Name]
    );
    assert_eq!(
        parse_get_fields("bogus").unwrap_err(),
        "invalid column name 'bogus'"
    );
    assert_eq!(parse_get_fields("all").unwrap().len(), 5);
}
