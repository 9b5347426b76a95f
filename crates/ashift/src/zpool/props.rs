//! `zpool get`, `zpool set`.
//!
//! # Source
//! OpenZFS cmd/zpool/zpool_main.c (`zpool_do_get`, `zpool_do_set`), lib/libzfs/libzfs_pool.c
//! (`zpool_set_prop`).

use admin::getopt::Parsed;
use admin::listing::{GetRequest, Item, get as print_get, parse_get_fields};
use admin::pool::{PoolStatus, pools_json};
use admin::prop::{
    PoolContext, PropValue, TableKind, parse_list, parse_pool_assignment, split_assignment,
};
use spa::feature::{self, Support};

use super::list::{pool_names, styles};
use super::{Failure, Outcome, command_line, open_error};
use crate::host::{Access, Host, OpenPool};

/// `zpool get`.
pub(super) fn get(args: &Parsed) -> Outcome {
    let Some((names, given)) = args.operands.split_first() else {
        return Err(Failure::Usage("missing property argument".into()));
    };
    let properties = parse_list(TableKind::Pool, names).map_err(Failure::Usage)?;
    let mut request = GetRequest::new(properties);
    if let Some(text) = args.value('o') {
        request.fields = parse_get_fields(text).map_err(Failure::Usage)?;
    }
    let (style, _, json) = styles(args);
    let host = Host::here();
    let mut pools: Vec<(Item, PoolStatus)> = Vec::new();
    let mut code = 0;
    for name in pool_names(&host, given)? {
        if host.cache().find(&name)?.is_none() {
            eprintln!("Cannot get properties of {name}: no such pool available.");
            code = 1;
            continue;
        }
        pools.push(super::list::gather(&host, &name, true)?);
    }
    if args.has('j') {
        let refs: Vec<(Item, &PoolStatus)> = pools.iter().map(|(i, s)| (i.clone(), s)).collect();
        print!("{}", pools_json("zpool get", &style, json, &request, &refs));
        return Ok(code);
    }
    let items: Vec<Item> = pools.into_iter().map(|(item, _)| item).collect();
    print!("{}", print_get(&style, &request, &items));
    Ok(code)
}

/// `zpool set`.
pub(super) fn set(args: &Parsed) -> Outcome {
    let (assignment, pool) = match args.operands.as_slice() {
        [] => return Err(Failure::Usage("missing property=value argument".into())),
        [_] => return Err(Failure::Usage("missing pool name".into())),
        [assignment, pool] => (assignment, pool),
        [_, _, _] => {
            return Err(Failure::Text(
                "properties of vdevs are not supported yet".into(),
            ));
        }
        _ => return Err(Failure::Usage("too many pool names".into())),
    };
    let Some((name, value)) = split_assignment(assignment) else {
        return Err(Failure::Usage(
            "missing value in property=value argument".into(),
        ));
    };
    let failed = |text: String| Failure::Text(format!("cannot set property for '{pool}': {text}"));
    let host = Host::here();
    let open = host
        .open(pool, Access::Write)
        .map_err(|e| open_error(pool, &e))?;
    if name == "compatibility" {
        if value != "off" {
            super::create::compatibility_set(value).map_err(failed)?;
        }
        let set = (value != "off").then(|| value.to_owned());
        open.set_compatibility(set)
            .map_err(|e| failed(e.to_string()))?;
        return done(&host, &open);
    }
    let context = PoolContext::default();
    let (name, value) =
        parse_pool_assignment(name, value, &context).map_err(|e| failed(e.to_string()))?;
    if let Some(short) = name.strip_prefix("feature@") {
        enable(&open, short).map_err(failed)?;
        return done(&host, &open);
    }
    let outcome = match (name.as_str(), value) {
        ("comment", PropValue::Text(text)) => {
            open.set_comment(Some(text).filter(|text| !text.is_empty()))
        }
        ("bootfs", PropValue::Text(text)) => {
            let number = bootfs(&open, &text).map_err(failed)?;
            open.set_prop(&name, spa::PropValue::Number(number))
        }
        ("cachefile", _) => {
            let text = "'cachefile' is not supported yet: pools are remembered below ASHIFT_STATE";
            return Err(failed(text.to_owned()));
        }
        (_, PropValue::Number(n)) => open.set_prop(&name, spa::PropValue::Number(n)),
        (_, PropValue::Text(text)) => open.set_prop(&name, spa::PropValue::Text(text)),
    };
    outcome.map_err(|e| failed(e.to_string()))?;
    done(&host, &open)
}

fn bootfs(pool: &OpenPool, name: &str) -> Result<u64, String> {
    if name.is_empty() {
        return Ok(0);
    }
    let dataset = pool.dsl().dataset(name);
    dataset
        .map(|ds| ds.object().0)
        .map_err(|_| format!("'{name}' is an invalid name for property 'bootfs'"))
}

fn enable(pool: &OpenPool, name: &str) -> Result<(), String> {
    let feature = feature::by_name(name).ok_or_else(|| format!("invalid feature '{name}'"))?;
    if pool.features().count(feature.guid).is_some() {
        return Ok(());
    }
    if feature.support != Support::Kept {
        return Err(format!("feature '{name}' is not supported yet"));
    }
    if let Some(sets) = pool.compatibility() {
        let allowed = super::create::compatibility_set(&sets)?;
        if !allowed.iter().any(|allowed| allowed == name) {
            return Err(format!(
                "feature '{name}' is not in the pool's compatibility sets ('{sets}')"
            ));
        }
    }
    pool.enable_feature(feature).map_err(|e| e.to_string())
}

fn done(host: &Host, pool: &OpenPool) -> Outcome {
    pool.log_command(&command_line())?;
    pool.sync()?;
    let facts = host.facts(&pool.name())?;
    host.remember(pool, &facts)?;
    pool.close()?;
    Ok(0)
}
