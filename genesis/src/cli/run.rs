//! `genesis run`: starts a program several times on this machine, a GPU each.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use genesis_kernel::runtime::Device;
use rustix::process::{Pid, Signal, kill_process};

use super::output::warn;
use super::signals::Signals;
use super::{Failure, Outcome};

/// Start a program as several ranks on this machine, a GPU each.
///
/// Each process is told its rank as by torchrun (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT);
/// its lines are printed with the rank in front. The first that fails ends the others, and its exit code is
/// this command's.
#[derive(clap::Args)]
pub(super) struct Args {
    /// How many; as many as there are GPUs without it.
    #[arg(short = 'n', long = "ranks", value_name = "N")]
    ranks: Option<usize>,
    /// The port that rank 0 listens at; a free one without it.
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// The program, and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    program: Vec<OsString>,
}

/// How often processes are looked at.
const TICK: Duration = Duration::from_millis(20);
/// How long ranks may take to end after they were asked to.
const GRACE: Duration = Duration::from_secs(10);

/// A process, and the threads that print what it says.
struct Rank {
    number: usize,
    process: Child,
    status: Option<ExitStatus>,
    printers: Vec<JoinHandle<()>>,
}

pub(super) fn run(args: &Args) -> Outcome {
    let ranks = match args.ranks {
        Some(0) => return Err(Failure::Message("-n is 0: no rank would run".to_owned())),
        Some(ranks) => ranks,
        None => (Device::cuda_count() as usize).max(1),
    };
    let port = match args.port {
        Some(port) => port,
        None => free_port()?,
    };
    let signals = Signals::take()?;
    let mut started = Vec::new();
    for number in 0..ranks {
        match start(args, number, ranks, port) {
            Ok(rank) => started.push(rank),
            Err(why) => {
                end(&mut started);
                let program = args.program[0].display();
                return Err(Failure::Message(format!("{program} can't be started: {why}")));
            }
        }
    }
    let failed = wait(&mut started, &signals)?;
    end(&mut started);
    for printer in started.into_iter().flat_map(|rank| rank.printers) {
        // A printer that panicked has nothing more to say.
        let _ = printer.join();
    }
    match (signals.status(), failed) {
        (Some(status), _) => Err(Failure::Stopped(status)),
        (None, Some((number, status))) => {
            warn(format_args!("error: rank {number} ended with {status}; the others were ended"));
            Err(Failure::Stopped(status.code().map_or(1, |code| code as u8)))
        }
        (None, None) => Ok(()),
    }
}

/// A port that nobody listens at.
fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

fn start(args: &Args, number: usize, ranks: usize, port: u16) -> io::Result<Rank> {
    let mut command = Command::new(&args.program[0]);
    command.args(&args.program[1..]).stdin(Stdio::null());
    let variables = [
        ("RANK", number),
        ("WORLD_SIZE", ranks),
        ("LOCAL_RANK", number),
        ("LOCAL_WORLD_SIZE", ranks),
        ("MASTER_PORT", usize::from(port)),
    ];
    for (name, value) in variables {
        command.env(name, value.to_string());
    }
    command.env("MASTER_ADDR", "127.0.0.1");
    let mut printers = Vec::new();
    if ranks > 1 {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
    }
    let mut process = command.spawn()?;
    if let Some(stdout) = process.stdout.take() {
        printers.push(std::thread::spawn(move || print(number, stdout, io::stdout)));
    }
    if let Some(stderr) = process.stderr.take() {
        printers.push(std::thread::spawn(move || print(number, stderr, io::stderr)));
    }
    Ok(Rank { number, process, status: None, printers })
}

/// Prints lines with the rank in front until there are no more; where nobody reads them they are dropped,
/// so that the rank goes on.
fn print<W: Write>(number: usize, from: impl Read, to: impl Fn() -> W) {
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    while from.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
        let end = if line.ends_with(b"\n") { "" } else { "\n" };
        let whole = [format!("[{number}] ").as_bytes(), &line, end.as_bytes()].concat();
        let _ = to().write_all(&whole);
        line.clear();
    }
}

/// Waits until all have ended, one has failed, or a signal came; gives the first that failed.
fn wait(ranks: &mut [Rank], signals: &Signals) -> io::Result<Option<(usize, ExitStatus)>> {
    loop {
        for rank in ranks.iter_mut().filter(|rank| rank.status.is_none()) {
            rank.status = rank.process.try_wait()?;
            if let Some(status) = rank.status.filter(|status| !status.success()) {
                return Ok(Some((rank.number, status)));
            }
        }
        let is_over = ranks.iter().all(|rank| rank.status.is_some());
        if is_over || signals.stop().load(Ordering::SeqCst) {
            return Ok(None);
        }
        std::thread::sleep(TICK);
    }
}

/// Asks those that still run to end, and ends those that do not.
fn end(ranks: &mut [Rank]) {
    let is_running = |rank: &mut Rank| {
        rank.status = rank.status.or_else(|| rank.process.try_wait().ok().flatten());
        rank.status.is_none()
    };
    for rank in ranks.iter_mut() {
        if is_running(rank) {
            // It may have ended since.
            let _ = kill_process(Pid::from_child(&rank.process), Signal::TERM);
        }
    }
    let until = Instant::now() + GRACE;
    while ranks.iter_mut().any(is_running) && Instant::now() < until {
        std::thread::sleep(TICK);
    }
    for rank in ranks.iter_mut() {
        if is_running(rank) {
            let _ = rank.process.kill();
            let _ = rank.process.wait();
        }
    }
}
