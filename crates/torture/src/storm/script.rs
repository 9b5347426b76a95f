//! A script as text: `seed`, `mistake`, `end_ms` and `pool` lines, then one line for each step.

use std::fmt;
use std::str::FromStr;

use super::step::{Step, numbers};
use crate::pool::Layout;

/// Everything that a run does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    /// The seed of the simulation: schedule of its threads, and its random numbers.
    pub seed: u64,
    /// A mistake made on purpose, which the run must detect.
    pub mistake: Option<Mistake>,
    /// The run ends before the first step that would begin at this simulated time or later, in milliseconds.
    pub end_ms: Option<u64>,
    /// The pools to create.
    pub pools: Vec<PoolSpec>,
    /// The steps to carry out.
    pub steps: Vec<Step>,
}

/// A mistake made on purpose, to see that it is detected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mistake {
    /// Now and then the model gets a byte that differs from the pool's.
    WrongByte,
    /// Some writes are acknowledged and dropped, the same ones by every device.
    LostWrites,
}

const MISTAKES: [(Mistake, &str); 2] = [
    (Mistake::WrongByte, "wrong-byte"),
    (Mistake::LostWrites, "lost-writes"),
];

/// A pool of a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolSpec {
    /// How its devices make up the pool.
    pub layout: Layout,
    /// The number of devices.
    pub devices: u64,
    /// Sectors of `1 << ashift` bytes.
    pub ashift: u64,
    /// The size of each device, in MiB.
    pub mib: u64,
    /// The longest that a command takes, in microseconds; 0: no delay.
    pub latency_us: u64,
    /// 1: without `fast_dedup`, whose tables have logs; 0: with it.
    pub classic: u64,
}

impl fmt::Display for PoolSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let layout = match self.layout {
            Layout::Stripe => "stripe".to_owned(),
            Layout::Mirror => "mirror".to_owned(),
            Layout::Raidz(parity) => format!("raidz{parity}"),
            Layout::Draid(parity, data, 0) => format!("draid{parity}:{data}d"),
            Layout::Draid(parity, data, spares) => format!("draid{parity}:{data}d:{spares}s"),
            Layout::Classes => "classes".to_owned(),
        };
        let PoolSpec {
            devices,
            ashift,
            mib,
            latency_us,
            classic,
            ..
        } = self;
        write!(
            f,
            "{layout} devices={devices} ashift={ashift} mib={mib} latency_us={latency_us} \
             classic={classic}"
        )
    }
}

impl FromStr for PoolSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<PoolSpec, String> {
        let mut words = text.split_whitespace();
        let layout = match words.next() {
            Some("stripe") => Layout::Stripe,
            Some("mirror") => Layout::Mirror,
            Some("raidz1") => Layout::Raidz(1),
            Some("raidz2") => Layout::Raidz(2),
            Some("raidz3") => Layout::Raidz(3),
            Some("draid1:2d") => Layout::Draid(1, 2, 0),
            Some("draid2:3d") => Layout::Draid(2, 3, 0),
            Some("draid1:2d:1s") => Layout::Draid(1, 2, 1),
            Some("draid2:3d:1s") => Layout::Draid(2, 3, 1),
            Some("classes") => Layout::Classes,
            other => return Err(format!("there is no layout {other:?}")),
        };
        let names = ["devices", "ashift", "mib", "latency_us", "classic"];
        let [devices, ashift, mib, latency_us, classic] = numbers(words, names)?;
        if !(1..=8).contains(&devices) || !(9..=16).contains(&ashift) || !(64..=4096).contains(&mib)
        {
            return Err(format!("'{text}' is out of bounds"));
        }
        Ok(PoolSpec {
            layout,
            devices,
            ashift,
            mib,
            latency_us,
            classic,
        })
    }
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}", self.seed)?;
        if let Some(mistake) = self.mistake {
            let found = MISTAKES.iter().find(|(m, _)| *m == mistake);
            writeln!(f, "mistake {}", found.expect("every mistake is listed").1)?;
        }
        if let Some(end) = self.end_ms {
            writeln!(f, "end_ms {end}")?;
        }
        for pool in &self.pools {
            writeln!(f, "pool {pool}")?;
        }
        for step in &self.steps {
            writeln!(f, "{step}")?;
        }
        Ok(())
    }
}

impl FromStr for Script {
    type Err = String;

    fn from_str(text: &str) -> Result<Script, String> {
        let mut script = Script {
            seed: 0,
            mistake: None,
            end_ms: None,
            pools: Vec::new(),
            steps: Vec::new(),
        };
        for (n, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if !line.is_empty() {
                let taken = script.take_line(line);
                taken.map_err(|e| format!("line {}: {e}", n + 1))?;
            }
        }
        if script.pools.is_empty() {
            return Err("a script has at least one pool".into());
        }
        Ok(script)
    }
}

impl Script {
    fn take_line(&mut self, line: &str) -> Result<(), String> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "seed" => self.seed = number(rest)?,
            "end_ms" => self.end_ms = Some(number(rest)?),
            "mistake" => {
                let found = MISTAKES.iter().find(|(_, name)| *name == rest);
                let (mistake, _) = found.ok_or_else(|| format!("there is no mistake '{rest}'"))?;
                self.mistake = Some(*mistake);
            }
            "pool" => self.pools.push(rest.parse()?),
            _ => self.steps.push(line.parse()?),
        }
        Ok(())
    }
}

fn number(text: &str) -> Result<u64, String> {
    text.parse()
        .map_err(|_| format!("'{text}' is not a number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_can_be_parsed() {
        for seed in 0..20 {
            let mut script = crate::storm::plan(seed, 1.0);
            script.mistake = Some(MISTAKES[seed as usize % 2].0);
            script.end_ms = (seed % 3 == 0).then_some(seed * 1000);
            assert_eq!(script.to_string().parse(), Ok(script));
        }
        let wrong = "pool mirror devices=2 ashift=12 mib=64 latency_us=0\nfiles pool=x";
        assert_eq!(
            wrong.parse::<Script>().unwrap_err(),
            "line 2: 'pool=x' has no number"
        );
    }
}
