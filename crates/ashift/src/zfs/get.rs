//! `zfs get`.

use admin::getopt::Parsed;
use admin::listing::{self, GetField, GetRequest, parse_get_fields};
use admin::prop::{TableKind, Types, parse_list};
use service::Session;

use super::fail::{Fail, Outcome};
use super::item::{Wanted, item};
use super::list::{json_style, style};
use super::target::{Selection, parse_depth, parse_types};

fn sources(text: &str) -> Outcome<Vec<String>> {
    let known = [
        "local",
        "default",
        "inherited",
        "received",
        "temporary",
        "none",
    ];
    let words: Vec<String> = text.split(',').map(str::to_owned).collect();
    match words.iter().find(|word| !known.contains(&word.as_str())) {
        Some(word) => Err(Fail::usage(format!("invalid source '{word}'"))),
        None => Ok(words),
    }
}

/// `zfs get`.
pub(super) fn get(session: &Session, parsed: &Parsed) -> Outcome {
    let (style, json) = (style(parsed), json_style(parsed)?);
    let Some((properties, names)) = parsed.operands.split_first() else {
        return Err(Fail::usage("missing property argument"));
    };
    let fields = parsed
        .value('o')
        .map(parse_get_fields)
        .transpose()
        .map_err(Fail::Usage)?;
    let request = GetRequest {
        properties: parse_list(TableKind::Dataset, properties).map_err(Fail::Usage)?,
        fields: fields.unwrap_or_else(|| GetField::DEFAULT.to_vec()),
        sources: parsed
            .value('s')
            .map(sources)
            .transpose()?
            .unwrap_or_default(),
        measures_first: false,
    };
    let types = parsed.value('t').map(parse_types).transpose()?;
    let depth = parsed.value('d').map(parse_depth).transpose()?;
    let mut selection = Selection {
        types: types.unwrap_or(Types::DATASET.or(Types::BOOKMARK)),
        snapshots_as_pool_says: false,
        recurses: parsed.has('r') || depth.is_some(),
        depth,
    };
    let only = [Types::SNAPSHOT, Types::BOOKMARK].contains(&selection.types);
    if only && !names.is_empty() && !selection.recurses {
        selection.recurses = true;
        selection.depth = Some(1);
    }
    let (targets, outcome) = selection.gather(session, names);
    let wanted = Wanted {
        names: request.properties.as_deref().unwrap_or_default(),
        received: request.fields.contains(&GetField::Received),
    };
    let mut items = Vec::new();
    for target in &targets {
        let read = item(target, wanted);
        items.push(read.map_err(|e| Fail::of(format!("cannot read '{}'", target.name), &e))?);
    }
    listing::sort_datasets(&mut items, &[]);
    match json {
        Some(json) => {
            outcome?;
            print!(
                "{}",
                listing::datasets_json("zfs get", &style, json, &request, &items)
            );
            Ok(())
        }
        None => {
            print!("{}", listing::get(&style, &request, &items));
            outcome
        }
    }
}
