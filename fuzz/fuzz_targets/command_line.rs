//! Parses words as the command line has them: vdev specs, properties, names, numbers.
#![no_main]

use admin::prop::{
    DatasetContext, PoolContext, TableKind, Types, parse_dataset_assignment, parse_list,
    parse_pool_assignment, split_assignment,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &str| {
    let words: Vec<&str> = input.split(' ').collect();
    let _ = admin::vdev_spec::parse_vdev_spec(&words);
    for word in words {
        let _ = admin::number::parse_number(word);
        let _ = admin::name::check_pool_name(word, true);
        let _ = admin::name::check_component(word);
        let _ = admin::name::check_nesting(word);
        for kind in [TableKind::Dataset, TableKind::Pool] {
            let _ = parse_list(kind, word);
        }
        let Some((name, value)) = split_assignment(word) else {
            continue;
        };
        for types in [Types::FILESYSTEM, Types::VOLUME] {
            let _ = parse_dataset_assignment(name, value, &DatasetContext::existing(types));
            let _ = parse_dataset_assignment(name, value, &DatasetContext::creating(types));
        }
        for is_new in [false, true] {
            let context = PoolContext {
                is_new,
                is_import: !is_new,
            };
            let _ = parse_pool_assignment(name, value, &context);
        }
    }
});
