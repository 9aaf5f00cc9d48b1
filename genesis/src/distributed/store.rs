//! A small store of keys and values that rank 0 holds and all ranks reach over TCP: what ranks tell each
//! other before they have a communicator, and when one of them no longer answers.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::world::World;
use crate::error::{Error, Result};

/// The longest key or value.
const MOST: u32 = 16 << 20;
/// Rank 0 is looked for this often.
const RETRY: Duration = Duration::from_millis(50);

/// What a request asks for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Request {
    /// Sets a key.
    Set = 0,
    /// Waits for a key, for so many milliseconds at most.
    Get = 1,
    /// Adds to a number, and gives what it was.
    Add = 2,
    /// As `Get`, and removes the key.
    Take = 3,
    /// Gives the values of all ranks of a group, in their order, as soon as the last one has come.
    Gather = 4,
}

/// The values, and who waits for them.
#[derive(Default)]
struct Values {
    map: Mutex<BTreeMap<Vec<u8>, Vec<u8>>>,
    changed: Condvar,
    gathers: Mutex<BTreeMap<Vec<u8>, Gathered>>,
    complete: Condvar,
}

/// The values of the ranks that have come.
#[derive(Default)]
struct Gathered {
    parts: BTreeMap<u32, Vec<u8>>,
    /// Ranks that have got them all.
    served: usize,
}

/// A rank's connection to the store.
#[derive(Debug)]
pub struct Store {
    connection: Mutex<TcpStream>,
    timeout: Duration,
}

impl Store {
    /// Connects to rank 0, which serves the store from a thread of its own.
    ///
    /// # Errors
    /// If the port is taken on rank 0, or rank 0 is not there within the world's timeout.
    pub fn new(world: &World) -> Result<Store> {
        if world.rank == 0 {
            serve(&world.master)?;
        }
        Store::connect(&world.master, world.timeout)
    }

    /// Another connection, for a thread that must not wait for this one.
    pub(super) fn again(world: &World) -> Result<Store> {
        Store::connect(&world.master, world.timeout)
    }

    fn connect((host, port): &(String, u16), timeout: Duration) -> Result<Store> {
        let start = Instant::now();
        let mut seen = None;
        while start.elapsed() < timeout {
            match try_connect(host, *port, timeout) {
                Ok(connection) => {
                    return Ok(Store { connection: Mutex::new(connection), timeout });
                }
                Err(error) => seen = Some(error),
            }
            std::thread::sleep(RETRY);
        }
        let why = seen.map_or_else(String::new, |error| format!(": {error}"));
        let waited = timeout.as_secs_f64();
        Err(refuse(format!("rank 0 did not answer at {host}:{port} within {waited:.0} s{why}")))
    }

    /// Sets a key.
    ///
    /// # Errors
    /// If rank 0 is gone.
    pub fn set(&self, key: &str, value: &[u8]) -> Result<()> {
        self.ask(Request::Set, key, value).map(drop)
    }

    /// The value of a key, as soon as some rank sets it; none if nobody has within `wait`.
    ///
    /// # Errors
    /// If rank 0 is gone.
    pub fn get_within(&self, key: &str, wait: Duration) -> Result<Option<Vec<u8>>> {
        let millis = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        self.ask(Request::Get, key, &millis.to_le_bytes())
    }

    /// The value of a key, as soon as some rank sets it.
    ///
    /// # Errors
    /// If rank 0 is gone, or nobody sets it within the world's timeout.
    pub fn get(&self, key: &str) -> Result<Vec<u8>> {
        self.get_within(key, self.timeout)?.ok_or_else(|| {
            let waited = self.timeout.as_secs_f64();
            refuse(format!("no rank said `{key}` within {waited:.0} s"))
        })
    }

    /// Adds to a number, which starts at 0, and gives what it is then.
    ///
    /// # Errors
    /// If rank 0 is gone.
    pub fn add(&self, key: &str, by: i64) -> Result<i64> {
        let value = self.ask(Request::Add, key, &by.to_le_bytes())?;
        Ok(number(&value.unwrap_or_default()))
    }

    /// As [`Store::get_within`], and removes the key.
    pub(super) fn take_within(&self, key: &str, wait: Duration) -> Result<Option<Vec<u8>>> {
        let millis = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        self.ask(Request::Take, key, &millis.to_le_bytes())
    }

    /// The values of `size` ranks, one after the other in their order, as soon as all have called this; none if one has not
    /// within `wait`. Values are as long on all ranks, and together no longer than [`Store::MOST_GATHERED`].
    pub(super) fn gather_within(
        &self,
        key: &str,
        (rank, size): (usize, usize),
        value: &[u8],
        wait: Duration,
    ) -> Result<Option<Vec<u8>>> {
        let millis = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        let (rank, size) = ((rank as u32).to_le_bytes(), (size as u32).to_le_bytes());
        self.ask(Request::Gather, key, &[&millis.to_le_bytes(), &rank[..], &size, value].concat())
    }

    /// The most bytes that a gather gives.
    pub(super) const MOST_GATHERED: usize = MOST as usize - 64;

    fn ask(&self, request: Request, key: &str, value: &[u8]) -> Result<Option<Vec<u8>>> {
        let answer = ask(&mut lock(&self.connection), request, key, value);
        answer.map_err(|why| refuse(format!("rank 0, which holds the store, is gone: {why}")))
    }
}

fn ask(
    connection: &mut TcpStream,
    request: Request,
    key: &str,
    value: &[u8],
) -> io::Result<Option<Vec<u8>>> {
    connection.write_all(&[request as u8])?;
    write_part(connection, key.as_bytes())?;
    write_part(connection, value)?;
    let mut found = [0];
    connection.read_exact(&mut found)?;
    let value = read_part(connection)?;
    Ok((found[0] == 1).then_some(value))
}

fn try_connect(host: &str, port: u16, timeout: Duration) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, timeout) {
            Ok(connection) => {
                connection.set_nodelay(true)?;
                return Ok(connection);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Serves a store until the process ends.
fn serve((host, port): &(String, u16)) -> Result<()> {
    // On all interfaces, since a name may mean another one here than elsewhere; but not beyond this
    // machine where only ranks of it are meant.
    let is_local = matches!(host.as_str(), "localhost" | "127.0.0.1" | "::1");
    let interface = if is_local { host.as_str() } else { "0.0.0.0" };
    let listener = TcpListener::bind((interface, *port)).map_err(|why| {
        refuse(format!("rank 0 can't listen at {interface}:{port}: {why}; MASTER_PORT is another"))
    })?;
    let values = Arc::new(Values::default());
    spawn("store", move || {
        for connection in listener.incoming().flatten() {
            let values = values.clone();
            // A rank that can't be answered finds its connection closed.
            let _ = spawn("store of a rank", move || drop(answer_all(connection, &values)));
        }
    })
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<()> {
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run);
    thread.map(drop).map_err(|why| refuse(format!("no thread for the {name}: {why}")))
}

/// Answers one rank until it closes the connection.
fn answer_all(mut connection: TcpStream, values: &Values) -> io::Result<()> {
    connection.set_nodelay(true)?;
    let mut request = [0];
    loop {
        connection.read_exact(&mut request)?;
        let (key, value) = (read_part(&mut connection)?, read_part(&mut connection)?);
        let answer = match request[0] {
            r if r == Request::Set as u8 => {
                lock(&values.map).insert(key, value);
                values.changed.notify_all();
                Some(Vec::new())
            }
            r if r == Request::Get as u8 => values.wait(&key, number(&value) as u64),
            r if r == Request::Take as u8 => {
                let value = values.wait(&key, number(&value) as u64);
                lock(&values.map).remove(&key);
                value
            }
            r if r == Request::Gather as u8 => values.gather(key, &value),
            r if r == Request::Add as u8 => Some(values.add(key, number(&value))),
            _ => return Err(io::Error::new(io::ErrorKind::InvalidData, "no such request")),
        };
        connection.write_all(&[u8::from(answer.is_some())])?;
        write_part(&mut connection, &answer.unwrap_or_default())?;
    }
}

impl Values {
    fn wait(&self, key: &[u8], millis: u64) -> Option<Vec<u8>> {
        let map = lock(&self.map);
        let missing = |map: &mut BTreeMap<Vec<u8>, Vec<u8>>| !map.contains_key(key);
        let waited = self.changed.wait_timeout_while(map, Duration::from_millis(millis), missing);
        let (map, _) = waited.unwrap_or_else(PoisonError::into_inner);
        map.get(key).cloned()
    }

    /// Adds a rank's value and waits for those of the others.
    fn gather(&self, key: Vec<u8>, request: &[u8]) -> Option<Vec<u8>> {
        let (millis, rest) = request.split_first_chunk::<8>()?;
        let (rank, rest) = rest.split_first_chunk::<4>()?;
        let (size, value) = rest.split_first_chunk::<4>()?;
        let size = u32::from_le_bytes(*size) as usize;
        let mut all = lock(&self.gathers);
        let own = all.entry(key.clone()).or_default();
        own.parts.insert(u32::from_le_bytes(*rank), value.to_vec());
        if own.parts.len() == size {
            self.complete.notify_all();
        }
        let wait = Duration::from_millis(u64::from_le_bytes(*millis));
        let lacks = |all: &mut BTreeMap<Vec<u8>, Gathered>| {
            all.get(&key).is_some_and(|gathered| gathered.parts.len() < size)
        };
        let waited = self.complete.wait_timeout_while(all, wait, lacks);
        let (mut all, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let gathered = all.get_mut(&key).filter(|gathered| gathered.parts.len() == size)?;
        let parts: Vec<&[u8]> = gathered.parts.values().map(Vec::as_slice).collect();
        let joined = parts.concat();
        gathered.served += 1;
        if gathered.served == size {
            all.remove(&key);
        }
        Some(joined)
    }

    fn add(&self, key: Vec<u8>, by: i64) -> Vec<u8> {
        let mut map = lock(&self.map);
        let value = map.entry(key).or_default();
        *value = number(value).wrapping_add(by).to_le_bytes().to_vec();
        let value = value.clone();
        self.changed.notify_all();
        value
    }
}

/// A number as it travels; 0 for anything else.
fn number(bytes: &[u8]) -> i64 {
    bytes.try_into().map_or(0, i64::from_le_bytes)
}

fn write_part(to: &mut impl Write, part: &[u8]) -> io::Result<()> {
    let length = u32::try_from(part.len()).ok().filter(|&length| length <= MOST);
    let length = length.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "too long"))?;
    to.write_all(&length.to_le_bytes())?;
    to.write_all(part)
}

fn read_part(from: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length);
    if length > MOST {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a part that is too long"));
    }
    let mut part = vec![0; length as usize];
    from.read_exact(&mut part)?;
    Ok(part)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn refuse(message: String) -> Error {
    Error::op("distributed", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A world whose port nobody else has.
    fn world(rank: usize, port: u16) -> World {
        let master = ("127.0.0.1".to_owned(), port);
        World { rank, size: 2, master, timeout: Duration::from_secs(20), ..World::alone() }
    }

    fn free_port() -> u16 {
        TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
    }

    #[test]
    fn ranks_read_what_others_said() {
        let port = free_port();
        let other = std::thread::spawn(move || {
            let store = Store::new(&world(1, port)).unwrap();
            let said = store.get("id").unwrap();
            (said, store.add("count", 2).unwrap())
        });
        let store = Store::new(&world(0, port)).unwrap();
        assert_eq!(store.get_within("id", Duration::from_millis(1)).unwrap(), None);
        store.set("id", b"value").unwrap();
        assert_eq!(other.join().unwrap(), (b"value".to_vec(), 2));
        assert_eq!(store.add("count", 3).unwrap(), 5);
    }

    #[test]
    fn a_rank_zero_that_is_not_there_is_named() {
        let port = free_port();
        let world = World { timeout: Duration::from_millis(200), ..world(1, port) };
        let error = Store::new(&world).unwrap_err().to_string();
        assert!(error.contains(&format!("rank 0 did not answer at 127.0.0.1:{port}")), "{error}");
    }

    #[test]
    fn a_port_that_is_taken_is_named() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        let error = Store::new(&world(0, port)).unwrap_err().to_string();
        assert!(error.contains(&format!("rank 0 can't listen at 127.0.0.1:{port}")), "{error}");
    }
}
