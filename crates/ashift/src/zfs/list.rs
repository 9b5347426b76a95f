//! `zfs list`.

use admin::getopt::{Flag, Parsed};
use admin::listing::{self, GetRequest, JsonStyle, SortKey, Style};
use admin::number::NumberStyle;
use admin::prop::{PropName, TableKind, Types, all_properties, is_user_property, parse_list};
use service::Session;

use super::fail::{Fail, Outcome};
use super::item::{Wanted, item};
use super::target::{Selection, parse_depth, parse_types};

/// How `list` and `get` print numbers and dates.
pub(super) fn style(parsed: &Parsed) -> Style {
    let exact = parsed.has('p') || parsed.has_long("json-int");
    Style {
        is_scripted: parsed.has('H'),
        numbers: if exact {
            NumberStyle::Exact
        } else {
            NumberStyle::Nice
        },
        zone: crate::zone::local(),
        ..Style::new(TableKind::Dataset)
    }
}

/// `-j` and `--json-int`.
pub(super) fn json_style(parsed: &Parsed) -> Outcome<Option<JsonStyle>> {
    let has_numbers = parsed.has_long("json-int");
    if !parsed.has('j') {
        let wrong = || Fail::usage("'--json-int' only works with '-j' option");
        return if has_numbers { Err(wrong()) } else { Ok(None) };
    }
    Ok(Some(JsonStyle {
        has_numbers,
        ..JsonStyle::default()
    }))
}

/// Parses `-o`: `all` is every property, after the name.
fn columns(parsed: &Parsed) -> Outcome<Vec<PropName>> {
    let Some(text) = parsed.value('o') else {
        return Ok(listing::default_columns(TableKind::Dataset));
    };
    Ok(parse_list(TableKind::Dataset, text)
        .map_err(Fail::Usage)?
        .unwrap_or_else(|| {
            let all = all_properties(TableKind::Dataset)
                .into_iter()
                .map(|desc| desc.name);
            std::iter::once("name")
                .chain(all)
                .map(PropName::Native)
                .collect()
        }))
}

fn sort_keys(parsed: &Parsed) -> Outcome<Vec<SortKey>> {
    let mut keys = Vec::new();
    for (flag, value) in &parsed.options {
        let is_reverse = match flag {
            Flag::Short('s') => false,
            Flag::Short('S') => true,
            _ => continue,
        };
        let name = value.as_deref().unwrap_or_default();
        let invalid = || Fail::usage(format!("invalid property '{name}'"));
        let list = parse_list(TableKind::Dataset, name).ok().flatten();
        let sorts = |name: &PropName| match name {
            PropName::Other(name) => is_user_property(name),
            PropName::Native(_) => true,
        };
        let list = list.filter(|list| list.len() == 1 && list.iter().all(sorts));
        let list = list.ok_or_else(invalid)?;
        keys.extend(list.into_iter().map(|name| SortKey { name, is_reverse }));
    }
    Ok(keys)
}

fn selection(parsed: &Parsed) -> Outcome<Selection> {
    let given = parsed.value('t').map(parse_types).transpose()?;
    let depth = parsed.value('d').map(parse_depth).transpose()?;
    let space = parsed.value('o') == Some("space");
    let default = if space {
        Types::FILESYSTEM.or(Types::VOLUME)
    } else {
        Types::DATASET
    };
    let mut selection = Selection {
        types: given.unwrap_or(default),
        snapshots_as_pool_says: given.is_none(),
        recurses: parsed.has('r') || depth.is_some(),
        depth,
    };
    // `zfs list -t snapshot DATASET` means its snapshots.
    let only = [Types::SNAPSHOT, Types::BOOKMARK].contains(&selection.types);
    if only && !parsed.operands.is_empty() && !selection.recurses {
        selection.recurses = true;
        selection.depth = Some(1);
    }
    Ok(selection)
}

/// `zfs list`.
pub(super) fn list(session: &Session, parsed: &Parsed) -> Outcome {
    let (style, json) = (style(parsed), json_style(parsed)?);
    let (columns, keys, selection) = (columns(parsed)?, sort_keys(parsed)?, selection(parsed)?);
    let mut names = columns.clone();
    names.extend(keys.iter().map(|key| key.name.clone()));
    let (targets, outcome) = selection.gather(session, &parsed.operands);
    let mut items = Vec::new();
    for target in &targets {
        let wanted = Wanted {
            names: &names,
            received: false,
        };
        let read = item(target, wanted);
        items.push(read.map_err(|e| Fail::of(format!("cannot read '{}'", target.name), &e))?);
    }
    listing::sort_datasets(&mut items, &keys);
    let outcome = match json {
        Some(json) => {
            outcome?;
            let request = GetRequest::new(Some(columns));
            let text = listing::datasets_json("zfs list", &style, json, &request, &items);
            print!("{text}");
            Ok(())
        }
        None => {
            if !items.is_empty() {
                print!("{}", listing::list(&style, &columns, &items));
            }
            outcome
        }
    };
    if items.is_empty() && outcome.is_ok() && !style.is_scripted {
        eprintln!("no datasets available");
    }
    outcome
}
