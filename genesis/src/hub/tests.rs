//! Downloads from a hub that is a thread of the test: one that redirects, cuts off, lies, and refuses.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, SHA256, digest};
use serde_json::json;

use super::*;

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
const REPO: &str = "org/tiny";

/// What a client asked for.
#[derive(Clone, Debug)]
struct Asked {
    method: String,
    path: String,
    range: Option<u64>,
    token: Option<String>,
}

/// What the server answers.
struct Answer {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
    /// How many bytes of the body come before the connection ends.
    sent: usize,
}

fn answer(status: u16, headers: &[(&'static str, &str)], body: &[u8]) -> Answer {
    let headers = headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    Answer { status, headers, body: body.to_vec(), sent: body.len() }
}

/// A server of one address, whose thread ends with the test.
struct Server {
    address: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Server {
    fn start(reply: impl Fn(&Asked) -> Answer + Send + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = asked.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let Some(question) = read(&stream) else { continue };
                log.lock().unwrap().push(question.clone());
                write(stream, &question, &reply(&question));
            }
        });
        Server { address, asked }
    }

    fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    /// How a model is looked for here, in an empty cache.
    fn options(&self, cache: &Path) -> HubOptions {
        HubOptions {
            cache: Some(cache.to_owned()),
            endpoint: self.address.clone(),
            token: Some("hf_secret".to_owned()),
            offline: false,
            retries: 2,
            wait: Duration::from_millis(1),
            progress: None,
        }
    }
}

fn read(stream: &TcpStream) -> Option<Asked> {
    let mut lines = BufReader::new(stream).lines();
    let first = lines.next()?.ok()?;
    let mut words = first.split(' ').map(str::to_owned);
    let (method, path) = (words.next()?, words.next()?);
    let mut asked = Asked { method, path, range: None, token: None };
    for line in lines.map_while(|line| line.ok()).take_while(|line| !line.is_empty()) {
        let (name, value) = line.split_once(": ")?;
        match name.to_ascii_lowercase().as_str() {
            "range" => asked.range = value.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok(),
            "authorization" => asked.token = Some(value.to_owned()),
            _ => {}
        }
    }
    Some(asked)
}

fn write(mut stream: TcpStream, asked: &Asked, answer: &Answer) {
    let Answer { status, headers, body, sent } = answer;
    let mut text = format!("HTTP/1.1 {status} X\r\nConnection: close\r\n");
    headers.iter().for_each(|(name, value)| text += &format!("{name}: {value}\r\n"));
    text += &format!("Content-Length: {}\r\n\r\n", body.len());
    let _ = stream.write_all(text.as_bytes());
    if asked.method != "HEAD" {
        let _ = stream.write_all(&body[..(*sent).min(body.len())]);
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn sha256(bytes: &[u8]) -> String {
    hex(digest(&SHA256, bytes).as_ref())
}

fn git_hash(bytes: &[u8]) -> String {
    let blob = [format!("blob {}\0", bytes.len()).as_bytes(), bytes].concat();
    hex(digest(&SHA1_FOR_LEGACY_USE_ONLY, &blob).as_ref())
}

/// The bytes of a safetensors file of one tensor.
fn weights(name: &str) -> Vec<u8> {
    let header = json!({ name: { "dtype": "U8", "shape": [300], "data_offsets": [0, 300] } });
    let header = header.to_string();
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &[7; 300]].concat()
}

/// The files of the model that the tests download.
fn tiny() -> BTreeMap<&'static str, Vec<u8>> {
    let files = [
        ("config.json", b"{}".to_vec()),
        ("tokenizer.json", b"{\"a\": 1}".to_vec()),
        ("model.safetensors", weights("x")),
        ("README.md", b"read me".to_vec()),
        ("pytorch_model.bin", b"old".to_vec()),
        ("onnx/model.onnx", b"other".to_vec()),
        ("../../evil", b"evil".to_vec()),
    ];
    files.into()
}

/// What a hub answers that has these files: weights from another place, as it stores large files.
fn hub(files: &BTreeMap<&str, Vec<u8>>, asked: &Asked) -> Answer {
    if asked.path == format!("/api/models/{REPO}/revision/main") {
        let siblings: Vec<_> = files.keys().map(|name| json!({ "rfilename": name })).collect();
        let listing = json!({ "sha": COMMIT, "siblings": siblings });
        return answer(200, &[], listing.to_string().as_bytes());
    }
    let file = asked.path.strip_prefix(&format!("/{REPO}/resolve/{COMMIT}/"));
    let (file, is_stored) = match asked.path.strip_prefix("/stored/") {
        Some(stored) => (Some(stored), true),
        None => (file, false),
    };
    let Some((file, bytes)) = file.and_then(|file| Some((file, files.get(file)?))) else {
        return answer(404, &[("X-Error-Code", "EntryNotFound")], b"");
    };
    if file.ends_with(".safetensors") && !is_stored {
        let (etag, size) = (format!("\"{}\"", sha256(bytes)), bytes.len().to_string());
        let (place, one) = (format!("/stored/{file}"), ("X-Linked-Etag", etag.as_str()));
        return answer(302, &[one, ("X-Linked-Size", &size), ("Location", &place)], b"");
    }
    let etag = format!("\"{}\"", git_hash(bytes));
    match asked.range.filter(|_| asked.method == "GET") {
        None => answer(200, &[("ETag", &etag)], bytes),
        Some(start) if start as usize >= bytes.len() => answer(416, &[], b""),
        Some(start) => {
            let range = format!("bytes {start}-{}/{}", bytes.len() - 1, bytes.len());
            answer(206, &[("Content-Range", &range)], &bytes[start as usize..])
        }
    }
}

fn folder(cache: &Path) -> PathBuf {
    cache.join("models--org--tiny")
}

fn error(found: Result<ModelFiles>) -> String {
    found.unwrap_err().to_string()
}

#[test]
fn a_model_is_downloaded_once_and_lies_where_other_programs_look() {
    let server = Server::start(|asked| hub(&tiny(), asked));
    let cache = tempfile::tempdir().unwrap();
    let told = Arc::new(Mutex::new(Vec::new()));
    let log = told.clone();
    let tell =
        move |p: Progress<'_>| log.lock().unwrap().push((p.file.to_owned(), p.done, p.total));
    let options = HubOptions { progress: Some(Arc::new(tell)), ..server.options(cache.path()) };
    let files = resolve(REPO, &options).unwrap();
    let snapshot = folder(cache.path()).join("snapshots").join(COMMIT);
    assert_eq!(files.folder(), Some(snapshot.as_path()));
    assert_eq!(files.weights().unwrap().names(), ["x"]);
    let mut names: Vec<_> =
        fs::read_dir(&snapshot).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["config.json", "model.safetensors", "tokenizer.json"]);
    let size = weights("x").len() as u64;
    let last = told.lock().unwrap().last().cloned();
    assert_eq!(last, Some(("model.safetensors".to_owned(), size, Some(size))));
    let refs = fs::read_to_string(folder(cache.path()).join("refs/main")).unwrap();
    assert_eq!(refs, COMMIT);
    #[cfg(unix)]
    {
        let link = fs::read_link(snapshot.join("model.safetensors")).unwrap();
        assert_eq!(link, Path::new("../../blobs").join(sha256(&weights("x"))));
        let link = fs::read_link(snapshot.join("config.json")).unwrap();
        assert_eq!(link, Path::new("../../blobs").join(git_hash(b"{}")));
    }
    // From now on nothing is asked for, and by nobody who may not.
    let count = server.asked().len();
    let offline = HubOptions { offline: true, ..server.options(cache.path()) };
    assert_eq!(resolve(REPO, &offline).unwrap().folder(), Some(snapshot.as_path()));
    assert_eq!(resolve(REPO, &options).unwrap(), files);
    assert_eq!(server.asked().len(), count);
}

#[test]
fn a_body_that_is_cut_off_is_resumed() {
    let server = Server::start(|asked| {
        let whole = hub(&tiny(), asked);
        let sent = if asked.path.starts_with("/stored/") { 100 } else { whole.sent };
        Answer { sent, ..whole }
    });
    let cache = tempfile::tempdir().unwrap();
    let files = resolve(REPO, &server.options(cache.path())).unwrap();
    assert_eq!(files.weights().unwrap().names(), ["x"]);
    let asked = server.asked();
    let ranges: Vec<_> = asked
        .iter()
        .filter(|a| a.path.starts_with("/stored/") && a.method == "GET")
        .map(|a| a.range)
        .collect();
    assert_eq!(ranges, [None, Some(100), Some(200), Some(300)]);
}

#[test]
fn what_another_process_left_unfinished_is_taken_up() {
    let (bytes, cache) = (weights("x"), tempfile::tempdir().unwrap());
    let blobs = folder(cache.path()).join("blobs");
    fs::create_dir_all(&blobs).unwrap();
    let partial = blobs.join(format!("{}.incomplete", sha256(&bytes)));
    fs::write(&partial, &bytes[..50]).unwrap();
    let server = Server::start(|asked| hub(&tiny(), asked));
    resolve(REPO, &server.options(cache.path())).unwrap();
    assert!(server.asked().iter().any(|asked| asked.range == Some(50)));
    assert!(!partial.exists());
    // One that is longer than the file, and a server that sends all of it whatever is asked for.
    for (left, ranges) in [(vec![0; 1000], true), (bytes[..50].to_vec(), false)] {
        let cache = tempfile::tempdir().unwrap();
        let blobs = folder(cache.path()).join("blobs");
        fs::create_dir_all(&blobs).unwrap();
        fs::write(blobs.join(format!("{}.incomplete", sha256(&bytes))), left).unwrap();
        let server = Server::start(move |asked| {
            let range = asked.range.filter(|_| ranges);
            hub(&tiny(), &Asked { range, ..asked.clone() })
        });
        resolve(REPO, &server.options(cache.path())).unwrap();
    }
}

#[test]
fn damaged_bytes_are_refused_and_do_not_stay() {
    let server = Server::start(|asked| {
        let mut whole = hub(&tiny(), asked);
        if asked.path.starts_with("/stored/") {
            whole.body[200] ^= 1;
        }
        whole
    });
    let cache = tempfile::tempdir().unwrap();
    let text = error(resolve(REPO, &server.options(cache.path())));
    assert!(text.contains("model.safetensors is damaged: its SHA-256 is"), "{text}");
    let blobs = fs::read_dir(folder(cache.path()).join("blobs")).unwrap().count();
    assert_eq!(blobs, 2, "config.json and tokenizer.json");
    let offline = HubOptions { offline: true, ..server.options(cache.path()) };
    assert!(error(resolve(REPO, &offline)).contains("no complete snapshot of revision main"));
}

#[test]
fn a_connection_that_gives_nothing_is_given_up() {
    let server = Server::start(|asked| {
        let whole = hub(&tiny(), asked);
        let sent = if asked.path.starts_with("/stored/") { 0 } else { whole.sent };
        Answer { sent, ..whole }
    });
    let cache = tempfile::tempdir().unwrap();
    let text = error(resolve(REPO, &server.options(cache.path())));
    assert!(text.contains("model.safetensors was cut off"), "{text}");
    let tries = server.asked().iter().filter(|asked| asked.path.starts_with("/stored/")).count();
    assert_eq!(tries, 3, "one, and the two retries");
}

#[test]
fn a_busy_hub_is_asked_again() {
    let seen = Mutex::new(BTreeSet::new());
    let server = Server::start(move |asked| {
        let is_first = seen.lock().unwrap().insert((asked.method.clone(), asked.path.clone()));
        if is_first { answer(503, &[], b"") } else { hub(&tiny(), asked) }
    });
    let cache = tempfile::tempdir().unwrap();
    resolve(REPO, &server.options(cache.path())).unwrap();
}

#[test]
fn refusals_say_what_to_do() {
    let cases = [
        (404, "RepoNotFound", "has no org/tiny for this HF_TOKEN: it is misspelt, private, or"),
        (401, "", "has no org/tiny for this HF_TOKEN"),
        (403, "GatedRepo", "org/tiny is gated: ask for access at http://127.0.0.1"),
        (404, "RevisionNotFound", "org/tiny has no revision main"),
        (418, "", "answers 418 for org/tiny"),
    ];
    for (status, code, wanted) in cases {
        let server = Server::start(move |_| answer(status, &[("X-Error-Code", code)], b""));
        let cache = tempfile::tempdir().unwrap();
        let text = error(resolve(REPO, &server.options(cache.path())));
        assert!(text.contains(wanted), "{text}");
        assert!(!text.contains("hf_secret"));
        assert_eq!(server.asked().len(), 1, "asking again does not help");
    }
}

#[test]
fn the_token_stays_with_the_hub() {
    let store = Server::start(|asked| hub(&tiny(), asked));
    let place = store.address.clone();
    let server = Server::start(move |asked| {
        let mut whole = hub(&tiny(), asked);
        for (name, value) in &mut whole.headers {
            if *name == "Location" {
                *value = format!("{place}{value}");
            }
        }
        whole
    });
    let cache = tempfile::tempdir().unwrap();
    resolve(REPO, &server.options(cache.path())).unwrap();
    let bearer = Some("Bearer hf_secret".to_owned());
    assert!(server.asked().iter().all(|asked| asked.token == bearer));
    assert!(!store.asked().is_empty());
    assert!(store.asked().iter().all(|asked| asked.token.is_none()));
}

#[test]
fn a_renamed_model_is_followed_but_not_for_ever() {
    let server = Server::start(|asked| match asked.path.strip_prefix("/api/models/org/old/") {
        Some(rest) => answer(307, &[("Location", &format!("/api/models/{REPO}/{rest}"))], b""),
        None => hub(&tiny(), &Asked { path: asked.path.replace("org/old", REPO), ..asked.clone() }),
    });
    let cache = tempfile::tempdir().unwrap();
    resolve("org/old", &server.options(cache.path())).unwrap();
    let server = Server::start(|asked| answer(302, &[("Location", &asked.path)], b""));
    let text = error(resolve(REPO, &server.options(cache.path())));
    assert!(text.contains("redirects more than 10 times"), "{text}");
}

#[test]
fn shards_and_one_of_several_gguf_files_are_downloaded() {
    let index = json!({ "weight_map": { "x": "model-00001-of-00002.safetensors",
                                        "y": "model-00002-of-00002.safetensors" } });
    let mut files = tiny();
    files.remove("model.safetensors");
    files.insert("model.safetensors.index.json", index.to_string().into_bytes());
    files.insert("model-00001-of-00002.safetensors", weights("x"));
    files.insert("model-00002-of-00002.safetensors", weights("y"));
    files.insert("consolidated.safetensors", weights("z"));
    files.insert("tiny-Q4_0.gguf", b"GGUF".to_vec());
    files.insert("tiny-Q8_0.gguf", b"GGUF8".to_vec());
    let server = Server::start(move |asked| hub(&files, asked));
    let cache = tempfile::tempdir().unwrap();
    let found = resolve(REPO, &server.options(cache.path())).unwrap();
    assert_eq!(found.weights().unwrap().names(), ["x", "y"]);
    assert!(!server.asked().iter().any(|asked| asked.path.contains("consolidated")));
    let gguf = resolve(&format!("{REPO}:q8_0"), &server.options(cache.path())).unwrap();
    assert_eq!(fs::read(gguf.gguf().unwrap()).unwrap(), b"GGUF8");
    let text = error(resolve(&format!("{REPO}:q2_k"), &server.options(cache.path())));
    assert!(
        text.contains("has no GGUF file q2_k, it has tiny-Q4_0.gguf, tiny-Q8_0.gguf"),
        "{text}"
    );
    // A shard that is gone is downloaded again.
    let shard = folder(cache.path()).join("blobs").join(sha256(&weights("y")));
    fs::remove_file(&shard).unwrap();
    resolve(REPO, &server.options(cache.path())).unwrap();
    assert!(shard.exists());
}

#[test]
fn a_hub_that_lies_writes_nothing_elsewhere() {
    let lies = [
        json!({ "sha": "../../../x", "siblings": [] }).to_string(),
        json!({ "siblings": [] }).to_string(),
        "[".repeat(100_000),
    ];
    for lie in lies {
        let server = Server::start(move |_| answer(200, &[], lie.as_bytes()));
        let cache = tempfile::tempdir().unwrap();
        error(resolve(REPO, &server.options(cache.path())));
        assert_eq!(fs::read_dir(cache.path()).unwrap().count(), 0);
    }
    let server = Server::start(|asked| match asked.path.starts_with("/api/") {
        true => hub(&tiny(), asked),
        false => answer(200, &[("ETag", "\"../../x\"")], b"{}"),
    });
    let cache = tempfile::tempdir().unwrap();
    let text = error(resolve(REPO, &server.options(cache.path())));
    assert!(text.contains("has no usable ETag"), "{text}");
    // A file that never ends stops at the size that was promised.
    let server = Server::start(|asked| {
        let mut whole = hub(&tiny(), asked);
        if asked.path.starts_with("/stored/") {
            whole.body.resize(1 << 20, 0);
            whole.sent = whole.body.len();
        }
        whole
    });
    let text = error(resolve(REPO, &server.options(cache.path())));
    assert!(text.contains("model.safetensors is longer than the hub said"), "{text}");
}

#[test]
fn nothing_is_asked_for_offline() {
    let server = Server::start(|asked| hub(&tiny(), asked));
    let cache = tempfile::tempdir().unwrap();
    let offline = HubOptions { offline: true, ..server.options(cache.path()) };
    let text = error(resolve(REPO, &offline));
    let wanted = format!(
        "org/tiny is no path here, and {} has no complete snapshot of revision main; nothing is \
         downloaded offline (HF_HUB_OFFLINE)",
        folder(cache.path()).display()
    );
    assert_eq!(text, wanted);
    assert!(server.asked().is_empty());
    let nowhere = HubOptions { cache: None, ..offline };
    assert!(error(resolve(REPO, &nowhere)).contains("set HF_HOME or HOME"));
    let closed =
        HubOptions { endpoint: "http://127.0.0.1:1".to_owned(), ..server.options(cache.path()) };
    assert!(error(resolve(REPO, &closed)).contains("can't reach http://127.0.0.1:1"));
}
