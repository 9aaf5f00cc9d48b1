//! World: rank and size as the launcher's environment says (torchrun, Slurm, mpirun).

use std::time::Duration;

use genesis_kernel::knobs::world_variable;

use crate::error::{Error, Result};

/// A process among those that run the same program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct World {
    /// This process among all.
    pub rank: usize,
    /// How many processes there are.
    pub size: usize,
    /// This process among those of its machine; the number of its GPU.
    pub local_rank: usize,
    /// How many processes this machine has.
    pub local_size: usize,
    /// Where rank 0 listens: a host and a port.
    pub master: (String, u16),
    /// How long anything waits for other ranks.
    pub timeout: Duration,
    /// Who started it, `torchrun`, `Open MPI` or `Slurm`; nobody where it is a program on its own.
    pub launcher: Option<&'static str>,
}

/// The port where launchers say none; torchrun's.
const PORT: u16 = 29500;
/// PyTorch's for NCCL.
const TIMEOUT: Duration = Duration::from_secs(600);

/// The variables of one launcher: rank, number of ranks, and the two of this machine.
struct Launcher {
    name: &'static str,
    variables: [&'static str; 4],
}

/// The launchers that are known. The first whose rank is set is the one that runs, so that torchrun under
/// Slurm counts as torchrun.
const LAUNCHERS: [Launcher; 3] = [
    Launcher {
        name: "torchrun",
        variables: ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"],
    },
    Launcher {
        name: "Open MPI",
        variables: [
            "OMPI_COMM_WORLD_RANK",
            "OMPI_COMM_WORLD_SIZE",
            "OMPI_COMM_WORLD_LOCAL_RANK",
            "OMPI_COMM_WORLD_LOCAL_SIZE",
        ],
    },
    Launcher {
        name: "Slurm",
        variables: ["SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"],
    },
];

impl World {
    /// What the launcher says: `genesis run`, torchrun, mpirun or srun; a world of one where there is none.
    ///
    /// # Errors
    /// If a variable is no number, one is missing, or a rank is not below the number of ranks.
    pub fn from_env() -> Result<World> {
        World::read(&|name| world_variable(name).map(|value| value.to_string_lossy().into_owned()))
    }

    /// A world of one process.
    pub fn alone() -> World {
        World {
            rank: 0,
            size: 1,
            local_rank: 0,
            local_size: 1,
            master: ("127.0.0.1".to_owned(), PORT),
            timeout: TIMEOUT,
            launcher: None,
        }
    }

    fn read(lookup: &dyn Fn(&str) -> Option<String>) -> Result<World> {
        let given = |launcher: &&Launcher| lookup(launcher.variables[0]).is_some();
        let Some(launcher) = LAUNCHERS.iter().find(given) else { return Ok(World::alone()) };
        let number = |name: &str| -> Result<Option<usize>> {
            let Some(text) = lookup(name) else { return Ok(None) };
            let number = text.trim().parse().ok();
            number
                .map(Some)
                .ok_or_else(|| refuse(format!("{name} is `{text}`, no number of ranks")))
        };
        let [rank, size, local_rank, local_size] = launcher.variables;
        let (Some(rank), Some(size)) = (number(rank)?, number(size)?) else {
            let (set, size) = (launcher.variables[0], launcher.variables[1]);
            let name = launcher.name;
            return Err(refuse(format!("{set} is set as by {name}, but {size} is not")));
        };
        if rank >= size {
            let names = launcher.variables;
            let message = format!("{} is {rank}, but {} is {size}", names[0], names[1]);
            return Err(refuse(message));
        }
        let local_rank = number(local_rank)?.unwrap_or(rank);
        let local_size = number(local_size)?.unwrap_or(size);
        let master = master(launcher, lookup, size)?;
        let (timeout, launcher) = (TIMEOUT, Some(launcher.name));
        Ok(World { rank, size, local_rank, local_size, master, timeout, launcher })
    }
}

/// Where rank 0 listens.
fn master(
    launcher: &Launcher,
    lookup: &dyn Fn(&str) -> Option<String>,
    size: usize,
) -> Result<(String, u16)> {
    let is_slurm = launcher.name == "Slurm";
    let first = || lookup("SLURM_JOB_NODELIST").and_then(|nodes| first_host(&nodes));
    let host = lookup("MASTER_ADDR").or_else(|| if is_slurm { first() } else { None });
    let host = match host {
        Some(host) => host,
        // mpirun says no address; ranks of one machine need none.
        None if lookup("OMPI_COMM_WORLD_LOCAL_SIZE") == Some(size.to_string()) => {
            "127.0.0.1".to_owned()
        }
        None if size == 1 => "127.0.0.1".to_owned(),
        None => {
            return Err(refuse(format!(
                "MASTER_ADDR is not set: {} does not say where rank 0 is",
                launcher.name
            )));
        }
    };
    let port = match lookup("MASTER_PORT") {
        Some(text) => {
            text.trim().parse().map_err(|_| refuse(format!("MASTER_PORT is `{text}`, no port")))?
        }
        None if is_slurm => job_port(lookup("SLURM_JOB_ID")),
        None => PORT,
    };
    // torchrun holds the port itself, for a store of PyTorch's.
    let is_taken = launcher.name == "torchrun"
        && lookup("TORCHELASTIC_USE_AGENT_STORE").is_some_and(|said| said == "True");
    Ok((host, if is_taken { next_port(port) } else { port }))
}

/// The port after one; the one before the last.
fn next_port(port: u16) -> u16 {
    port.checked_add(1).unwrap_or(port - 1)
}

/// A port that two jobs of one machine are unlikely to share.
fn job_port(job: Option<String>) -> u16 {
    let job: u64 = job.and_then(|job| job.trim().parse().ok()).unwrap_or(0);
    10000 + (job % 20000) as u16
}

/// The first of a list of hosts as Slurm writes it: `node[003-005,7],other`.
fn first_host(nodes: &str) -> Option<String> {
    let (name, rest) = match nodes.find(['[', ',']) {
        None => return Some(nodes.to_owned()).filter(|name| !name.is_empty()),
        Some(at) => nodes.split_at(at),
    };
    let number = match rest.strip_prefix('[') {
        None => "",
        Some(range) => range.split(['-', ',', ']']).next()?,
    };
    Some(format!("{name}{number}"))
}

fn refuse(message: String) -> Error {
    Error::op("distributed", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Result<World> {
        let find = |name: &str| variables.iter().find(|(key, _)| *key == name);
        World::read(&|name| find(name).map(|(_, value)| (*value).to_owned()))
    }

    fn place(world: &World) -> (usize, usize, usize, usize, String) {
        let (host, port) = &world.master;
        (world.rank, world.size, world.local_rank, world.local_size, format!("{host}:{port}"))
    }

    #[test]
    fn without_a_launcher_it_is_alone() {
        assert_eq!(of(&[]).unwrap(), World::alone());
    }

    #[test]
    fn torchrun_says_all() {
        let world = of(&[
            ("RANK", "5"),
            ("WORLD_SIZE", "8"),
            ("LOCAL_RANK", "1"),
            ("LOCAL_WORLD_SIZE", "4"),
            ("MASTER_ADDR", "node0"),
            ("MASTER_PORT", "1234"),
            ("SLURM_PROCID", "0"),
            ("SLURM_NTASKS", "1"),
        ]);
        assert_eq!(place(&world.unwrap()), (5, 8, 1, 4, "node0:1234".to_owned()));
    }

    #[test]
    fn torchrun_holds_its_port() {
        let port = |port| {
            let variables = [
                ("RANK", "0"),
                ("WORLD_SIZE", "2"),
                ("MASTER_ADDR", "node0"),
                ("MASTER_PORT", port),
                ("TORCHELASTIC_USE_AGENT_STORE", "True"),
            ];
            of(&variables).unwrap().master.1
        };
        assert_eq!([port("1234"), port("65535")], [1235, 65534]);
    }

    #[test]
    fn open_mpi_needs_no_address_on_one_machine() {
        let mut variables = vec![
            ("OMPI_COMM_WORLD_RANK", "1"),
            ("OMPI_COMM_WORLD_SIZE", "2"),
            ("OMPI_COMM_WORLD_LOCAL_RANK", "1"),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
        ];
        assert_eq!(place(&of(&variables).unwrap()), (1, 2, 1, 2, "127.0.0.1:29500".to_owned()));
        variables[3].1 = "1";
        let error = of(&variables).unwrap_err().to_string();
        assert!(error.contains("MASTER_ADDR is not set: Open MPI"), "{error}");
    }

    #[test]
    fn slurm_names_hosts_and_the_job() {
        let world = of(&[
            ("SLURM_PROCID", "3"),
            ("SLURM_NTASKS", "4"),
            ("SLURM_LOCALID", "1"),
            ("SLURM_NTASKS_PER_NODE", "2"),
            ("SLURM_JOB_NODELIST", "gpu[007-009,11],cpu1"),
            ("SLURM_JOB_ID", "20001"),
        ]);
        assert_eq!(place(&world.unwrap()), (3, 4, 1, 2, "gpu007:10001".to_owned()));
        let host = |nodes| first_host(nodes).unwrap_or_default();
        assert_eq!([host("a,b"), host("c"), host("d[1]"), host("")], ["a", "c", "d1", ""]);
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        let error = |variables: &[(&str, &str)]| of(variables).unwrap_err().to_string();
        let message = error(&[("RANK", "one"), ("WORLD_SIZE", "2")]);
        assert!(message.contains("RANK is `one`, no number of ranks"), "{message}");
        let message = error(&[("RANK", "2"), ("WORLD_SIZE", "2")]);
        assert!(message.contains("RANK is 2, but WORLD_SIZE is 2"), "{message}");
        let message = error(&[("RANK", "0")]);
        assert!(message.contains("RANK is set as by torchrun, but WORLD_SIZE is not"), "{message}");
        let given =
            [("RANK", "0"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "a"), ("MASTER_PORT", "x")];
        assert!(error(&given).contains("MASTER_PORT is `x`, no port"));
    }
}
