//! The request: options, the level of detail of each view, and the usage text.
//!
//! # What it is
//! Each view has a letter; repeating it makes that view more detailed, `-v` makes all of them more
//! detailed. Without any view, everything is shown that is not an action of its own.
//!
//! # Source
//! OpenZFS cmd/zdb/zdb.c (`main`, `usage`).

use admin::getopt::{Flag, OptError, OptSpec, Parsed, parse};
use admin::number::number_prefix;
use base::Txg;

/// The usage text, shown for invalid arguments.
pub(super) const USAGE: &str = "\
Usage:\tzdb [-AbcdDFGhijLMPsvXy] [-e [-V] [-p <path> ...]] [-I <inflight I/Os>]
\t\t[-t <txg>] [-U <cache>]
\t\t[<poolname>[/<dataset | objset id>] [<object | range> ...]]
\tzdb [-AdijPv] [-e [-V] [-p <path> ...]] [-U <cache>]
\t\t[<poolname>[/<dataset | objset id>] [<object | range> ...]
\tzdb [-v] <bookmark>
\tzdb -C [-Aj] [-U <cache>] [<poolname>]
\tzdb -l [-Ajqu] <device>
\tzdb -m [-AFjLPX] [-e [-V] [-p <path> ...]] [-t <txg>] [-U <cache>]
\t\t<poolname> [<vdev> [<metaslab> ...]]
\tzdb -O <dataset> <path>
\tzdb -r <dataset> <path> <destination>
\tzdb -R [-A] [-e [-V] [-p <path> ...]] [-U <cache>]
\t\t<poolname> <vdev>:<offset>:<size>[:<flags>]
\tzdb -E [-A] word0:word1:...:word15
\tzdb -S [-AjP] [-e [-V] [-p <path> ...]] [-U <cache>] <poolname>

    Dataset name must include at least one separator character '/' or '@'
    If dataset name is specified, only that dataset is dumped
    If object numbers or object number ranges are specified, only those
    objects or ranges are dumped.

    Object ranges take the form <start>:<end>[:<flags>]
        start    Starting object number
        end      Ending object number, or -1 for no upper bound
        flags    Optional flags to select object types:
            A     All objects (this is the default)
            d     ZFS directories
            f     ZFS files 
            m     SPA space maps
            z     ZAPs
            -     Negate effect of next flag

    Options to control amount of output:
        -b --block-stats             block statistics
        -c --checksum                checksum all metadata (twice for all data) blocks
        -C --config                  config (or cachefile if alone)
        -d --datasets                dataset(s)
        -D --dedup-stats             dedup statistics
        -E --embedded-block-pointer=INTEGER
                                     decode and display block from an embedded block pointer
        -h --history                 pool history
        -i --intent-logs             intent logs
        -l --label                   read label contents
        -L --disable-leak-tracking   disable leak tracking (do not load spacemaps)
        -m --metaslabs               metaslabs
        -M --metaslab-groups         metaslab groups
        -O --object-lookups          perform object lookups by path
        -r --copy-object             copy an object by path to file
        -R --read-block              read and display block from a device
        -s --io-stats                report stats on zdb's I/O
        -S --simulate-dedup          simulate dedup to measure effect
        -v --verbose                 verbose (applies to all others)
        -y --livelist                perform livelist and metaslab validation on any livelists being deleted

    Below options are intended for use with other options:
        -A --ignore-assertions       accepted: there are no assertions to ignore
        -e --exported                pool is exported/destroyed/has altroot/not in a cachefile
        -F --automatic-rewind        accepted: a pool that does not open is not rewound
        -G --dump-debug-msg          accepted: there are no debug messages
        -I --inflight=INTEGER        accepted: the number of I/Os is the program's own
        -j --json                    JSON instead of text (-b, -C, -d, -l, -m, -S, -u)
        -p --path==PATH              use one or more with -e to specify path to vdev dir
        -P --parseable               print numbers in parseable form
        -q --skip-label              don't print label contents
        -t --txg=INTEGER             highest txg to use when searching for uberblocks
        -T --brt-stats               BRT statistics
        -u --uberblock               uberblock
        -U --cachefile=PATH          use alternate cachefile
        -V --verbatim                accepted: the config is read anew all the same
        -X --extreme-rewind          accepted: a pool that does not open is not rewound
        -Y --all-reconstruction      accepted: there are no split blocks
        -Z --zstd-headers            show ZSTD headers 
Specify an option more than once (e.g. -bb) to make only that option verbose
Default is to dump everything non-verbosely
";

const SPEC: OptSpec = OptSpec {
    short: "AbBcCdDeEFGhiI:jkK:lLmMNo:Op:PqrRsSt:TuU:vVx:XYyZ",
    long: &[
        ("ignore-assertions", Flag::Short('A')),
        ("block-stats", Flag::Short('b')),
        ("backup", Flag::Short('B')),
        ("checksum", Flag::Short('c')),
        ("config", Flag::Short('C')),
        ("datasets", Flag::Short('d')),
        ("dedup-stats", Flag::Short('D')),
        ("exported", Flag::Short('e')),
        ("embedded-block-pointer", Flag::Short('E')),
        ("automatic-rewind", Flag::Short('F')),
        ("dump-debug-msg", Flag::Short('G')),
        ("history", Flag::Short('h')),
        ("intent-logs", Flag::Short('i')),
        ("inflight", Flag::Short('I')),
        ("json", Flag::Short('j')),
        ("checkpointed-state", Flag::Short('k')),
        ("key", Flag::Short('K')),
        ("label", Flag::Short('l')),
        ("disable-leak-tracking", Flag::Short('L')),
        ("metaslabs", Flag::Short('m')),
        ("metaslab-groups", Flag::Short('M')),
        ("numeric", Flag::Short('N')),
        ("option", Flag::Short('o')),
        ("object-lookups", Flag::Short('O')),
        ("path", Flag::Short('p')),
        ("parseable", Flag::Short('P')),
        ("skip-label", Flag::Short('q')),
        ("copy-object", Flag::Short('r')),
        ("read-block", Flag::Short('R')),
        ("io-stats", Flag::Short('s')),
        ("simulate-dedup", Flag::Short('S')),
        ("txg", Flag::Short('t')),
        ("brt-stats", Flag::Short('T')),
        ("uberblock", Flag::Short('u')),
        ("cachefile", Flag::Short('U')),
        ("verbose", Flag::Short('v')),
        ("verbatim", Flag::Short('V')),
        ("dump-blocks", Flag::Short('x')),
        ("extreme-rewind", Flag::Short('X')),
        ("all-reconstruction", Flag::Short('Y')),
        ("livelist", Flag::Short('y')),
        ("zstd-headers", Flag::Short('Z')),
    ],
};

/// Options that select views; without any of them everything is shown.
const VIEWS: &str = "bBcCdDEGhilmMNOrRsSTuyZ";
/// Views that can be shown as JSON.
const JSON_VIEWS: &str = "bcCdlmSu";
/// Options that "everything" does not include.
const NOT_BY_DEFAULT: &str = "ABeEFkKlLNOPrRSXy";
/// `TXG_INITIAL`: there is no uberblock of an earlier txg.
const TXG_INITIAL: u64 = 4;

/// What is asked for.
pub(crate) struct Request {
    args: Parsed,
    /// The highest txg of uberblocks considered (`-t`).
    pub(super) max_txg: Option<Txg>,
}

impl Request {
    /// Reads the arguments.
    ///
    /// # Errors
    /// The text to print before the usage text.
    pub(super) fn parse(args: &[String]) -> Result<Request, String> {
        let args = parse(&SPEC, args).map_err(|error| complaint(&error, args))?;
        let mut request = Request {
            args,
            max_txg: None,
        };
        request.check()?;
        Ok(request)
    }

    /// Checks the values of options, in the order given.
    fn check(&mut self) -> Result<(), String> {
        for (flag, value) in &self.args.options {
            let (Flag::Short(letter), Some(value)) = (flag, value) else {
                continue;
            };
            match letter {
                'I' if leading_number(value) == 0 => {
                    return Err("maximum number of inflight bytes must be greater than 0".into());
                }
                'o' => return Err(bad_variable(value)),
                't' => {
                    let txg = leading_number(value);
                    if txg < TXG_INITIAL {
                        return Err(format!("incorrect txg specified: {value}"));
                    }
                    self.max_txg = Some(Txg(txg));
                }
                'U' if !value.starts_with('/') => {
                    return Err(
                        "cachefile must be an absolute path (i.e. start with a slash)".into(),
                    );
                }
                _ => {}
            }
        }
        if self.has('p') && !self.has('e') {
            return Err("-p option requires use of -e".into());
        }
        let is_text = |letter: &char| self.has(*letter) && !JSON_VIEWS.contains(*letter);
        match VIEWS.chars().find(is_text) {
            Some(letter) if self.has('j') => Err(format!("zdb: -{letter} has no JSON form")),
            _ => Ok(()),
        }
    }

    /// The first option given that is accepted but not supported, if any.
    pub(super) fn missing(&self) -> Option<char> {
        "BKkx".chars().find(|letter| self.has(*letter))
    }

    /// The arguments that are not options.
    pub(super) fn operands(&self) -> &[String] {
        &self.args.operands
    }

    pub(super) fn has(&self, letter: char) -> bool {
        self.args.has(letter)
    }

    pub(super) fn value(&self, letter: char) -> Option<&str> {
        self.args.value(letter)
    }

    pub(super) fn values(&self, letter: char) -> impl Iterator<Item = &str> {
        self.args.values(letter)
    }

    /// How often an option was given.
    pub(super) fn count(&self, letter: char) -> usize {
        let is_it = |(flag, _): &&(Flag, Option<String>)| *flag == Flag::Short(letter);
        self.args.options.iter().filter(is_it).count()
    }

    /// Whether no view was selected.
    fn shows_all(&self) -> bool {
        !VIEWS.chars().any(|letter| self.has(letter))
    }

    /// The level of detail for `letter`; 0: not shown.
    #[doc(alias = "dump_opt")]
    pub(super) fn level(&self, letter: char) -> usize {
        let shows_all = self.shows_all();
        let is_shown = !self.has('j') || JSON_VIEWS.contains(letter);
        let by_default = shows_all && is_shown && !NOT_BY_DEFAULT.contains(letter);
        let own = if by_default { 1 } else { self.count(letter) };
        let verbose = self.count('v').max(usize::from(shows_all));
        if own == 0 { 0 } else { own + verbose }
    }
}

/// The leading number in a text: `strtoull` with base 0.
pub(super) fn leading_number(text: &str) -> u64 {
    number_prefix(text).0
}

/// The message of getopt_long.
fn complaint(error: &OptError, args: &[String]) -> String {
    match error {
        OptError::Invalid(letter) => format!("zdb: invalid option -- '{letter}'"),
        OptError::InvalidLong(word) => {
            let (name, has_value) = match word.split_once('=') {
                Some((name, _)) => (name, true),
                None => (&**word, false),
            };
            let longs = SPEC.long.iter().map(|(long, _)| *long);
            let fitting: Vec<&str> = longs.filter(|long| long.starts_with(name)).collect();
            let is_known = has_value && (fitting.len() == 1 || fitting.contains(&name));
            if is_known {
                return format!("zdb: option '--{name}' doesn't allow an argument");
            }
            if fitting.len() > 1 {
                let all: String = fitting.iter().map(|long| format!(" '--{long}'")).collect();
                return format!("zdb: option '--{name}' is ambiguous; possibilities:{all}");
            }
            format!("zdb: unrecognized option '--{word}'")
        }
        OptError::MissingArgument(letter) => {
            let long = SPEC.long.iter().find(|(_, f)| *f == Flag::Short(*letter));
            let is_long = |(name, _): &&(&str, Flag)| args.contains(&format!("--{name}"));
            match long.filter(is_long) {
                Some((name, _)) => format!("zdb: option '--{name}' requires an argument"),
                None => format!("zdb: option requires an argument -- '{letter}'"),
            }
        }
    }
}

/// There are no global variables to set.
#[doc(alias = "set_global_var")]
fn bad_variable(argument: &str) -> String {
    let mut parts = argument.split('=').filter(|part| !part.is_empty());
    let (Some(name), Some(value), None) = (parts.next(), parts.next(), parts.next()) else {
        return String::new();
    };
    if leading_number(value) > u64::from(u32::MAX) {
        return format!(
            "Value for global variable '{name}' must be a 32-bit unsigned integer, got '{value}'"
        );
    }
    format!("Global variable '{name}' does not exist in this program")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(text: &str) -> Request {
        let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
        Request::parse(&words).unwrap_or_else(|text| panic!("{text}"))
    }

    #[test]
    fn levels_add_up_as_in_zdb() {
        let all = request("-e tank");
        assert_eq!((all.level('b'), all.level('u'), all.level('l')), (2, 2, 0));
        let some = request("-ddv tank");
        assert_eq!((some.level('d'), some.level('b')), (3, 0));
    }

    #[test]
    fn numbers_are_read_as_by_strtoull() {
        assert_eq!(number_prefix("0x1fz"), (31, "z"));
        assert_eq!(number_prefix("010"), (8, ""));
        assert_eq!(number_prefix("-1"), (u64::MAX, ""));
        assert_eq!(number_prefix("x"), (0, "x"));
        assert_eq!(number_prefix("0"), (0, ""));
    }
}
