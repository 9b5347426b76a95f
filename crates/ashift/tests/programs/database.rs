//! Databases: what they say is committed is there after the holder was killed.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::mounted::{mounted, runs_all, sh};

#[test]
fn sqlite_keeps_its_tables() {
    let Some(mounted) = mounted(&["sqlite3"]) else {
        return;
    };
    for journal in ["delete", "wal", "truncate"] {
        let said = mounted.sh(&format!(
            "sqlite3 {journal}.db 'PRAGMA journal_mode={journal}; PRAGMA mmap_size=1000000;
             CREATE TABLE t(id INTEGER PRIMARY KEY, x TEXT); CREATE INDEX i ON t(x);' > /dev/null
             for n in 1 2 3 4 5 6 7 8 9 10; do
                 echo \"BEGIN; WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM c WHERE n<200)
                       INSERT INTO t(x) SELECT hex(randomblob(40)) FROM c; DELETE FROM t WHERE id % 7 = $n % 7; COMMIT;\"
             done | sqlite3 {journal}.db
             sqlite3 {journal}.db 'PRAGMA integrity_check; VACUUM; PRAGMA integrity_check; SELECT count(*) > 500 FROM t'"
        ));
        assert_eq!(said, "ok\nok\n1\n", "{journal}");
    }
    mounted.end();
}

/// A PostgreSQL server whose cluster is on the mount.
struct Server {
    programs: PathBuf,
    cluster: PathBuf,
    /// Where its socket is: not on the mount.
    socket: tempfile::TempDir,
}

impl Server {
    /// A command of PostgreSQL, run by its user.
    fn command(&self, words: &str) -> Command {
        let mut command = Command::new("setpriv");
        command
            .args([
                "--reuid=postgres",
                "--regid=postgres",
                "--clear-groups",
                "--",
            ])
            .args([
                "sh",
                "-euc",
                &format!("exec {}/{words}", self.programs.display()),
            ])
            .current_dir("/")
            .env("PGHOST", self.socket.path())
            .env("PGDATA", &self.cluster)
            .stdin(Stdio::null());
        command
    }

    #[track_caller]
    fn ok(&self, words: &str) -> String {
        let output = self.command(words).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{words}\n{out}{err}");
        out
    }

    /// Starts the server, which recovers what a crash left.
    fn start(&self) -> Child {
        let words = format!(
            "postgres -k {} -c listen_addresses= -c shared_buffers=16MB -c max_wal_size=64MB",
            self.socket.path().display()
        );
        let log = self.socket.path().join("log");
        let begin = || {
            let log = std::fs::File::create(&log).unwrap();
            self.command(&words).stderr(log).spawn().unwrap()
        };
        let began = Instant::now();
        let mut server = begin();
        while !self.command("pg_isready -q").status().unwrap().success() {
            let log = || std::fs::read_to_string(&log).unwrap();
            assert!(began.elapsed() < Duration::from_secs(120), "{}", log());
            std::thread::sleep(Duration::from_millis(50));
            // Processes of the one that was killed may be about to end.
            if server.try_wait().unwrap().is_some() {
                server = begin();
            }
        }
        server
    }
}

/// Commits numbers one by one, until the server is gone; those that it said are committed.
fn commit(server: &Server, client: usize) -> std::thread::JoinHandle<Vec<u64>> {
    let mut psql = server
        .command("psql -qAtX -v ON_ERROR_STOP=1 postgres")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = psql.stdin.take().unwrap();
    let output = BufReader::new(psql.stdout.take().unwrap());
    std::thread::spawn(move || {
        let mut lines = output.lines();
        let mut committed = Vec::new();
        loop {
            let insert = format!(
                "INSERT INTO t(client, pad) VALUES ({client}, repeat('x', 300)) RETURNING id;\n"
            );
            // Each statement is a transaction: it is committed when its answer comes.
            if input.write_all(insert.as_bytes()).is_err() {
                break;
            }
            let Some(Ok(line)) = lines.next() else { break };
            let Ok(id) = line.parse() else { break };
            committed.push(id);
        }
        let _ = psql.kill();
        let _ = psql.wait();
        committed
    })
}

/// `PROGRAMS=all` for 20 kills.
#[test]
fn postgresql_loses_no_transaction_when_the_holder_is_killed() {
    let Some(mut mounted) = mounted(&["postgres", "setpriv"]) else {
        return;
    };
    let programs = oracle::find_tool("postgres").unwrap();
    let place = mounted.path();
    let server = Server {
        programs: programs.parent().unwrap().to_owned(),
        cluster: place.join("pg"),
        socket: tempfile::tempdir().unwrap(),
    };
    // Its user passes through the folder that the mount is in.
    sh(
        place.parent().unwrap(),
        &format!(
            "chmod 755 . && chown postgres {0} && chmod 700 {0} && cd m && mkdir -m 700 pg && chown postgres pg",
            server.socket.path().display()
        ),
    );
    server.ok("initdb --no-sync -A trust > /dev/null");
    let mut running = server.start();
    server.ok(
        "psql -qX postgres -c 'CREATE TABLE t(id bigserial primary key, client int, pad text)'",
    );
    let mut committed: Vec<u64> = Vec::new();
    for round in 0..if runs_all() { 20 } else { 1 } {
        let clients = [commit(&server, 1), commit(&server, 2)];
        std::thread::sleep(Duration::from_millis(500 + 137 * round));
        mounted.kill();
        for client in clients {
            let ids = client.join().unwrap();
            assert!(!ids.is_empty(), "nothing was committed");
            committed.extend(ids);
        }
        let _ = running.kill();
        running.wait().unwrap();
        mounted.mount();
        running = server.start();
        let there = server.ok("psql -qAtX postgres -c 'SELECT id FROM t'");
        let there: BTreeSet<u64> = there.lines().map(|id| id.parse().unwrap()).collect();
        let lost: Vec<_> = committed.iter().filter(|id| !there.contains(id)).collect();
        assert!(lost.is_empty(), "committed, and not there: {lost:?}");
    }
    server.ok("pg_amcheck --install-missing postgres");
    server.ok("pg_ctl stop -s -m fast");
    running.wait().unwrap();
    mounted.end();
}
